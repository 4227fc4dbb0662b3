package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/metric"

	"penstock/dataplane/protocol"
	"penstock/dataplane/txn"
)

// transactionPatience is how long a producer's request waits for the end of its last
// transaction, mostly some milliseconds, instead of coming back after a pause of its own.
const transactionPatience = 100 * time.Millisecond

func (b *Broker) startTransactions(context.Context) error {
	b.producerIDs = newProducerIDs(b.zk, b.cfg.ID)
	log := &internalLog{topic: protocol.TransactionsTopic, partitions: b.partitions, metadata: b.metadata, timeout: b.cfg.RequestTimeout}
	peers := &markerPeers{b: b, links: map[int32]*link{}}
	b.txns = txn.New(txn.Config{
		MaxTimeout: b.cfg.TransactionMaxTimeout, AbortInterval: b.cfg.TransactionAbortInterval,
		IDExpiration: b.cfg.TransactionalIDExpiration, ExpiryInterval: b.cfg.TransactionalIDInterval,
		Patience: transactionPatience, Version: func() int16 { return b.features.read().Levels[protocol.FeatureTransactionVersion] },
		NextProducerID: b.producerIDs.take, Peers: peers, Settle: log.Settle, Logger: b.log,
	}, log)
	b.startVerifier()
	b.onStop("transaction coordinator", func(context.Context) error {
		b.txns.Close()
		peers.close()
		return nil
	})
	return nil
}

// transactionMetrics defines what the broker says of the transactions that it coordinates,
// and of what it asks other coordinators. unsent is Kafka's UnknownDestinationQueueSize; failures
// and the time of requests are VerificationFailureRate and VerificationTimeMs of its
// AddPartitionsToTxnManager.
func (b *Broker) transactionMetrics(m metric.Meter) error {
	in := &instruments{meter: m}
	queued := in.gauge("penstock.txn.markers.queued", "{marker}", "Transaction markers that wait for their turn to be sent.")
	unsent := in.gauge("penstock.txn.markers.unsent", "{marker}", "Transaction markers that have to be sent again, or whose partition has no leader.")
	requests := in.counter("penstock.txn.verification.requests", "{request}", "Requests by which transaction coordinators were asked about partitions.")
	asked := in.counter("penstock.txn.verification.partitions", "{partition}", "Partitions that they were asked about, or were to add.")
	failures := in.counter("penstock.txn.verification.failures", "{partition}", "Partitions that were not verified, for whichever reason.")
	seconds := in.seconds("penstock.txn.verification.time", "Time that the requests have taken, all together.")
	longest := in.fraction("penstock.txn.verification.longest", "s", "Longest request since the last report.")
	in.read(func(_ context.Context, o metric.Observer) error {
		q, u := b.txns.MarkerStats()
		o.ObserveInt64(queued, int64(q))
		o.ObserveInt64(unsent, int64(u))
		s := b.verifier.Stats()
		o.ObserveInt64(requests, s.Requests)
		o.ObserveInt64(asked, s.Partitions)
		o.ObserveInt64(failures, s.Failures)
		o.ObserveFloat64(seconds, s.Time.Seconds())
		o.ObserveFloat64(longest, s.Longest.Seconds())
		return nil
	}, queued, unsent, requests, asked, failures, seconds, longest)
	return in.err
}

// markerPeers leads the transaction coordinator to the leaders of partitions: a connection
// to each broker, this one included, on which its markers go one request at a time.
type markerPeers struct {
	b *Broker

	mu    sync.Mutex
	links map[int32]*link
}

// Leader implements txn.Peers.
func (m *markerPeers) Leader(tp protocol.TopicPartition) (broker int32, known bool) {
	image := m.b.metadata.Image()
	p := image.Partition(tp.Topic, tp.Partition)
	if p == nil {
		return -1, image.ControllerEpoch == 0 // before the controller's first word nothing is known to be missing
	}
	return p.Leader, true
}

// WriteMarkers implements txn.Peers.
func (m *markerPeers) WriteMarkers(ctx context.Context, broker int32, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error) {
	to := m.b.metadata.Image().Brokers[broker]
	if to == nil {
		return nil, fmt.Errorf("broker %d is not there", broker)
	}
	e, ok := to.Endpoint(m.b.cfg.InterBrokerListener)
	if !ok {
		return nil, fmt.Errorf("broker %d has no listener %s", broker, m.b.cfg.InterBrokerListener)
	}
	ctx, cancel := context.WithTimeout(ctx, m.b.cfg.RequestTimeout)
	defer cancel()
	resp, err := m.link(broker).do(ctx, hostPort(e.Host, e.Port), req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.WriteTxnMarkersResponse), nil
}

func (m *markerPeers) link(broker int32) *link {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.links[broker]
	if l == nil {
		l = &link{dialer: m.b.dialer}
		m.links[broker] = l
	}
	return l
}

func (m *markerPeers) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.links {
		l.close()
	}
}
