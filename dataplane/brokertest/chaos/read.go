package chaos

import (
	"bytes"
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/brokertest/nemesis"
	"penstock/dataplane/recordbatch"
)

// reader reads everything from the start, and asks for the ends meanwhile. What it
// sees goes into the history.
type reader struct {
	nemesis.Reader
	h *History
}

func newReader(h *History, name string, seeds, topics []string) (*reader, error) {
	v, err := nemesis.NewView(seeds)
	if err != nil {
		return nil, err
	}
	r := &reader{h: h}
	r.Reader = nemesis.Reader{Name: name, View: v, Topics: topics, Took: r.take, Besides: r.askEnds}
	r.OutOfRange = func(at nemesis.TP, epoch int32, asked int64, p *kmsg.FetchResponseTopicPartition) {
		h.anomaly("out of range", at, "%s asked for %d under epoch %d, log from %d, watermark %d", name, asked, epoch, p.LogStartOffset, p.HighWatermark)
	}
	return r, nil
}

func (r *reader) take(at nemesis.TP, epoch int32, asked int64, p *kmsg.FetchResponseTopicPartition) (next int64, note func()) {
	var records []Record
	next = asked
	for data := p.RecordBatches; len(data) > 0; {
		b, rest, err := recordbatch.Next(data)
		if err != nil {
			break // the reply's end is cut
		}
		if b.ComputeCRC() != b.CRC() {
			r.h.anomaly("corrupt", at, "the batch at %d has a wrong checksum", b.BaseOffset())
			return asked, func() {}
		}
		if err := recordbatch.Records(b, func(rec recordbatch.Record) error {
			if rec.Offset >= asked {
				w, seq := parse(rec.Value)
				records = append(records, Record{Offset: rec.Offset, Epoch: b.LeaderEpoch(), Writer: w, Seq: seq})
			}
			return nil
		}); err != nil {
			r.h.anomaly("corrupt", at, "the batch at %d: %v", b.BaseOffset(), err)
			return asked, func() {}
		}
		next = max(next, b.NextOffset())
		data = rest
	}
	return next, func() { r.h.Read(r.Name, at.Topic, at.Partition, epoch, p.HighWatermark, p.LastStableOffset, records) }
}

// askEnds asks a broker for the committed ends of what it leads.
func (r *reader) askEnds(ctx context.Context, of int32) {
	led := r.View.Led(of)
	if len(led) == 0 {
		return
	}
	req := kmsg.NewPtrListOffsetsRequest()
	byTopic := map[string]int{}
	for at, epoch := range led {
		i, ok := byTopic[at.Topic]
		if !ok {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = at.Topic
			i = len(req.Topics)
			byTopic[at.Topic] = i
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.Timestamp = at.Partition, epoch, -1
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	asked := r.h.Now()
	resp, err := nemesis.Ask[*kmsg.ListOffsetsResponse](ctx, r.View.Client, of, req)
	if err != nil {
		return
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				r.h.Latest(t.Topic, p.Partition, led[nemesis.TP{Topic: t.Topic, Partition: p.Partition}], asked, p.Offset)
			}
		}
	}
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
