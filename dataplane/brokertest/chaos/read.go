package chaos

import (
	"bytes"
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// reader reads every partition of its topics from the start, by fetches that
// name the leader's epoch, and asks for the ends meanwhile. What it sees goes
// into the history.
type reader struct {
	h      *History
	name   string
	topics []string
	v      *view

	mu   sync.Mutex
	next map[tp]int64
	kick chan struct{} // the view is stale
}

func newReader(h *History, name string, seeds, topics []string) (*reader, error) {
	v, err := newView(seeds)
	if err != nil {
		return nil, err
	}
	return &reader{h: h, name: name, topics: topics, v: v, next: map[tp]int64{}, kick: make(chan struct{}, 1)}, nil
}

// run reads until the context is over.
func (r *reader) run(ctx context.Context, brokers int) {
	defer r.v.cl.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = r.v.refresh(ctx, r.topics)
			select {
			case <-ctx.Done():
			case <-r.kick:
				pause(ctx, 50*time.Millisecond)
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	for id := range int32(brokers) {
		wg.Go(func() {
			for ctx.Err() == nil {
				if !r.fetch(ctx, id) {
					pause(ctx, 100*time.Millisecond)
				}
			}
		})
		wg.Go(func() {
			for pause(ctx, 300*time.Millisecond) {
				r.askEnds(ctx, id)
			}
		})
	}
	wg.Wait()
}

func (r *reader) stale() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// fetch reads on in what a broker leads; false means that there was no progress.
func (r *reader) fetch(ctx context.Context, from int32) bool {
	led := r.v.led(from)
	if len(led) == 0 {
		return false
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 300, 1, 4<<20, -1
	byTopic := map[string]*kmsg.FetchRequestTopic{}
	asked := map[tp]int64{}
	r.mu.Lock()
	for at, epoch := range led {
		if byTopic[at.topic] == nil {
			t := kmsg.NewFetchRequestTopic()
			t.Topic = at.topic
			byTopic[at.topic] = &t
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.FetchOffset, p.PartitionMaxBytes = at.partition, epoch, r.next[at], 256<<10
		asked[at] = p.FetchOffset
		byTopic[at.topic].Partitions = append(byTopic[at.topic].Partitions, p)
	}
	r.mu.Unlock()
	for t := range maps.Values(byTopic) {
		req.Topics = append(req.Topics, *t)
	}
	resp, err := ask[*kmsg.FetchResponse](ctx, r.v.cl, from, req)
	if err != nil {
		r.stale()
		return false
	}
	progress := false
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			at := tp{t.Topic, p.Partition}
			switch kerr.ErrorForCode(p.ErrorCode) {
			case nil:
				progress = true
				r.take(at, led[at], asked[at], p)
			case kerr.OffsetOutOfRange:
				r.h.Anomaly("out of range", at.topic, at.partition, "%s asked for %d under epoch %d, log from %d, watermark %d", r.name, asked[at], led[at], p.LogStartOffset, p.HighWatermark)
			default:
				r.stale()
			}
		}
	}
	return progress
}

func (r *reader) take(at tp, epoch int32, asked int64, p *kmsg.FetchResponseTopicPartition) {
	var records []Record
	next := asked
	for data := p.RecordBatches; len(data) > 0; {
		b, rest, err := recordbatch.Next(data)
		if err != nil {
			break // the reply's end is cut
		}
		if b.ComputeCRC() != b.CRC() {
			r.h.Anomaly("corrupt", at.topic, at.partition, "the batch at %d has a wrong checksum", b.BaseOffset())
			return
		}
		if err := recordbatch.Records(b, func(rec recordbatch.Record) error {
			if rec.Offset >= asked {
				w, seq := parse(rec.Value)
				records = append(records, Record{Offset: rec.Offset, Epoch: b.LeaderEpoch(), Writer: w, Seq: seq})
			}
			return nil
		}); err != nil {
			r.h.Anomaly("corrupt", at.topic, at.partition, "the batch at %d: %v", b.BaseOffset(), err)
			return
		}
		next = max(next, b.NextOffset())
		data = rest
	}
	r.mu.Lock()
	current := r.next[at] == asked
	if current {
		r.next[at] = next
	}
	r.mu.Unlock()
	if current {
		r.h.Read(r.name, at.topic, at.partition, epoch, p.HighWatermark, p.LastStableOffset, records)
	}
}

// askEnds asks a broker for the committed ends of what it leads.
func (r *reader) askEnds(ctx context.Context, of int32) {
	led := r.v.led(of)
	if len(led) == 0 {
		return
	}
	req := kmsg.NewPtrListOffsetsRequest()
	byTopic := map[string]int{}
	for at, epoch := range led {
		i, ok := byTopic[at.topic]
		if !ok {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = at.topic
			i = len(req.Topics)
			byTopic[at.topic] = i
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.Timestamp = at.partition, epoch, -1
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	asked := r.h.now()
	resp, err := ask[*kmsg.ListOffsetsResponse](ctx, r.v.cl, of, req)
	if err != nil {
		return
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				r.h.Latest(t.Topic, p.Partition, led[tp{t.Topic, p.Partition}], asked, p.Offset)
			}
		}
	}
}

// at is how far the reader is.
func (r *reader) at(topic string, p int32) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next[tp{topic, p}]
}

// parse reads a value: writer/sequence, and dots to its length. What is not of
// that form was never sent.
func parse(value []byte) (writer, seq int) {
	a, b, ok := bytes.Cut(bytes.TrimRight(value, "."), []byte("/"))
	w, err1 := strconv.Atoi(string(a))
	s, err2 := strconv.Atoi(string(b))
	if !ok || err1 != nil || err2 != nil {
		return -1, -1
	}
	return w, s
}
