package nemesis

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Reader reads every partition of its topics from the start, by fetches that
// name the leader's epoch.
type Reader struct {
	Name      string
	View      *View
	Topics    []string
	Isolation int8 // 1: only what is committed by its transaction

	// Took is given a partition's answer, from the leader of that epoch, and the offset
	// that was asked for. It returns the next offset, and what to do if nobody has
	// read on there meanwhile.
	Took func(at TP, epoch int32, asked int64, p *kmsg.FetchResponseTopicPartition) (next int64, note func())
	// OutOfRange is told of an offset that was read up to and is refused now.
	OutOfRange func(at TP, epoch int32, asked int64, p *kmsg.FetchResponseTopicPartition)
	// Besides is done for each broker now and then.
	Besides func(ctx context.Context, broker int32)

	mu   sync.Mutex
	next map[TP]int64
	kick chan struct{} // the view is stale
}

// Run reads from these brokers until the context is over, and closes the view.
func (r *Reader) Run(ctx context.Context, brokers []int32) {
	defer r.View.Client.Close()
	r.kick = make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = r.View.Refresh(ctx, r.Topics)
			select {
			case <-ctx.Done():
			case <-r.kick:
				Wait(ctx, 50*time.Millisecond)
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	for _, id := range brokers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if !r.fetch(ctx, id) {
					Wait(ctx, 100*time.Millisecond)
				}
			}
		})
		if r.Besides != nil {
			wg.Go(func() {
				for Wait(ctx, 300*time.Millisecond) {
					r.Besides(ctx, id)
				}
			})
		}
	}
	wg.Wait()
}

func (r *Reader) stale() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// fetch reads on in what a broker leads; false means that there was no progress.
func (r *Reader) fetch(ctx context.Context, from int32) bool {
	led := r.View.Led(from)
	if len(led) == 0 {
		return false
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch, req.IsolationLevel = 300, 1, 4<<20, -1, r.Isolation
	byTopic := map[string]*kmsg.FetchRequestTopic{}
	asked := map[TP]int64{}
	r.mu.Lock()
	for at, epoch := range led {
		if byTopic[at.Topic] == nil {
			t := kmsg.NewFetchRequestTopic()
			t.Topic = at.Topic
			byTopic[at.Topic] = &t
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.FetchOffset, p.PartitionMaxBytes = at.Partition, epoch, r.next[at], 256<<10
		asked[at] = p.FetchOffset
		byTopic[at.Topic].Partitions = append(byTopic[at.Topic].Partitions, p)
	}
	r.mu.Unlock()
	for t := range maps.Values(byTopic) {
		req.Topics = append(req.Topics, *t)
	}
	resp, err := Ask[*kmsg.FetchResponse](ctx, r.View.Client, from, req)
	if err != nil {
		r.stale()
		return false
	}
	progress := false
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			at := TP{t.Topic, p.Partition}
			switch kerr.ErrorForCode(p.ErrorCode) {
			case nil:
				progress = true
				next, note := r.Took(at, led[at], asked[at], p)
				if r.advance(at, asked[at], next) {
					note()
				}
			case kerr.OffsetOutOfRange:
				r.OutOfRange(at, led[at], asked[at], p)
			default:
				r.stale()
			}
		}
	}
	return progress
}

// advance moves the position on from where it was asked for.
func (r *Reader) advance(at TP, asked, next int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next[at] != asked {
		return false
	}
	if r.next == nil {
		r.next = map[TP]int64{}
	}
	r.next[at] = next
	return true
}

// At is how far the reader is.
func (r *Reader) At(at TP) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next[at]
}
