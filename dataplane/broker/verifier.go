package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/metadata"
	"penstock/dataplane/protocol"
	"penstock/dataplane/txnverify"
)

// startVerifier makes what asks transaction coordinators on behalf of partitions led here;
// it runs nothing before it is asked.
func (b *Broker) startVerifier() {
	links := &coordinatorLinks{b: b, byBroker: map[int32]*link{}}
	b.verifier = txnverify.New(txnverify.Config{
		Enabled:     func() bool { return b.now().VerifyTransactions },
		Coordinator: b.transactionCoordinator, Ask: links.ask,
		Begin: b.partitions.BeginVerification, End: b.partitions.EndVerification,
		Timeout: b.cfg.RequestTimeout, RetryBackoff: b.cfg.AddPartitionsRetryBackoff, RetryFor: b.cfg.AddPartitionsRetryFor, Logger: b.log,
	})
	b.stopVerifier = func() {
		b.verifier.Close()
		links.close()
	}
}

// transactionCoordinator is the leader of the transactional id's partition.
func (b *Broker) transactionCoordinator(txnID string) (int32, error) {
	im := b.metadata.Image()
	if t := im.Topic(protocol.TransactionsTopic); t != nil && t.Len() > 0 {
		p := coordinator.PartitionFor(txnID, int32(t.Len()))
		if _, id, ok := im.LeaderEndpoint(protocol.TransactionsTopic, p, b.cfg.InterBrokerListener); ok {
			return id, nil
		}
	}
	return -1, kerr.CoordinatorNotAvailable
}

// coordinatorLinks are connections to the brokers that coordinate transactions, this one too.
type coordinatorLinks struct {
	b *Broker

	mu       sync.Mutex
	byBroker map[int32]*link
}

// firstBatched is the first version of AddPartitionsToTxn for brokers.
const firstBatched = 4

// ask ends as soon as the broker is known to be dead: a stopped process keeps its
// connections open.
func (l *coordinatorLinks) ask(ctx context.Context, id int32, req *kmsg.AddPartitionsToTxnRequest) (*kmsg.AddPartitionsToTxnResponse, error) {
	br := l.b.metadata.Image().Brokers[id]
	if br == nil {
		return nil, fmt.Errorf("broker %d is not alive", id)
	}
	e, ok := br.Endpoint(l.b.cfg.InterBrokerListener)
	if !ok {
		return nil, fmt.Errorf("broker %d has no listener %s", id, l.b.cfg.InterBrokerListener)
	}
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if l.b.metadata.Await(ctx, func(im *metadata.Image) bool { return !im.Alive(id) }) == nil {
			cancel()
		}
	}()
	defer func() { cancel(); <-watched }()
	resp, err := l.of(id).doFrom(ctx, hostPort(e.Host, e.Port), req, firstBatched)
	if errors.Is(err, errOldVersion) {
		return nil, fmt.Errorf("%w: %w", txnverify.ErrOldCoordinator, err)
	} else if err != nil {
		return nil, err
	}
	return resp.(*kmsg.AddPartitionsToTxnResponse), nil
}

func (l *coordinatorLinks) of(id int32) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byBroker[id] == nil {
		l.byBroker[id] = &link{dialer: l.b.dialer}
	}
	return l.byBroker[id]
}

func (l *coordinatorLinks) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.byBroker {
		k.close()
	}
}
