package broker

import (
	"context"
	"sync"

	"penstock/dataplane/coordination"
)

// producerIDs hands out producer ids from blocks that ZooKeeper gives to one
// broker each.
type producerIDs struct {
	zk     *coordination.Client
	broker int32

	mu         sync.Mutex // held over the taking of a block: all wait for the same one
	next, last int64
}

func newProducerIDs(zk *coordination.Client, broker int32) *producerIDs {
	return &producerIDs{zk: zk, broker: broker, next: 0, last: -1}
}

func (p *producerIDs) take(ctx context.Context) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next > p.last {
		b, err := p.zk.NextProducerIDBlock(ctx, p.broker)
		if err != nil {
			return 0, err
		}
		p.next, p.last = b.First, b.Last
	}
	id := p.next
	p.next++
	return id, nil
}
