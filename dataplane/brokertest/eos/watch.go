package eos

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/brokertest/nemesis"
	"penstock/dataplane/recordbatch"
)

var errChecksum = errors.New("wrong checksum")

// watcher reads everything from the start, with its own idea of what is aborted.
type watcher struct {
	nemesis.Reader
	h    *History
	last bool
}

func newWatcher(h *History, name string, committed, last bool, seeds []string) (*watcher, error) {
	v, err := nemesis.NewView(seeds)
	if err != nil {
		return nil, err
	}
	w := &watcher{h: h, last: last}
	w.Reader = nemesis.Reader{Name: name, View: v, Topics: h.topics, Took: w.took}
	if committed {
		w.Isolation = 1
	}
	w.OutOfRange = func(at nemesis.TP, epoch int32, asked int64, p *kmsg.FetchResponseTopicPartition) {
		h.anomaly("out of range", at, "%s asked for %d under epoch %d, log from %d, watermark %d", name, asked, epoch, p.LogStartOffset, p.HighWatermark)
	}
	return w, nil
}

func (w *watcher) took(at nemesis.TP, epoch int32, asked int64, p *kmsg.FetchResponseTopicPartition) (next int64, note func()) {
	records, next, err := decode(p, asked, w.Isolation == 1)
	if err != nil {
		w.h.anomaly("corrupt", at, "read from %d: %v", asked, err)
		return asked, func() {}
	}
	return next, func() {
		w.h.Saw(Read{
			Reader: w.Name, Committed: w.Isolation == 1, Last: w.last, At: at, Epoch: epoch, HW: p.HighWatermark, LSO: p.LastStableOffset, Records: records,
		})
	}
}

// decode takes the records out of a reply, from an offset on, and, for readers of
// committed data, leaves out what the reply says is aborted: a producer's data from the
// first offset of its transaction to its abort marker.
func decode(p *kmsg.FetchResponseTopicPartition, from int64, committed bool) (records []Record, next int64, err error) {
	aborted := slices.Clone(p.AbortedTransactions)
	slices.SortFunc(aborted, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return int(a.FirstOffset - b.FirstOffset)
	})
	open := map[int64]bool{} // producers in a transaction that is aborted
	next = from
	for data := p.RecordBatches; len(data) > 0; {
		b, rest, err := recordbatch.Next(data)
		if err != nil {
			break // the reply's end is cut
		}
		if b.ComputeCRC() != b.CRC() {
			return nil, from, errChecksum
		}
		for len(aborted) > 0 && aborted[0].FirstOffset <= b.LastOffset() {
			open[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		skip := b.IsControl() || committed && b.IsTransactional() && open[b.ProducerID()]
		if err := recordbatch.Records(b, func(r recordbatch.Record) error {
			if b.IsControl() && len(r.Key) >= 4 && r.Key[3] == 0 {
				delete(open, b.ProducerID())
			}
			if !skip && r.Offset >= from {
				records = append(records, Record{r.Offset, string(r.Value)})
			}
			return nil
		}); err != nil {
			return nil, from, err
		}
		next = max(next, b.NextOffset())
		data = rest
	}
	return records, next, nil
}

// watchOffsets asks every broker, now and then, what the groups have committed: those
// that coordinate them answer.
func watchOffsets(ctx context.Context, h *History, v *nemesis.View, brokers []int32, partitions int32) {
	for nemesis.Wait(ctx, 300*time.Millisecond) {
		for stage, topic := range h.topics[:len(h.topics)-1] {
			for _, id := range brokers {
				if offsets, err := offsetsOf(ctx, v, id, groupOf(stage), topic, partitions); err == nil {
					for p, offset := range offsets {
						h.Looked(groupOf(stage), nemesis.TP{Topic: topic, Partition: p}, id, offset)
					}
				}
			}
		}
	}
}

// offsetsOf asks a broker for a group's committed offsets, whatever is open in
// transactions.
func offsetsOf(ctx context.Context, v *nemesis.View, broker int32, group, topic string, partitions int32) (map[int32]int64, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	t := kmsg.NewOffsetFetchRequestTopic()
	t.Topic = topic
	for p := range partitions {
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := nemesis.Ask[*kmsg.OffsetFetchResponse](ctx, v.Client, broker, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	offsets := map[int32]int64{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
			offsets[p.Partition] = p.Offset
		}
	}
	return offsets, nil
}
