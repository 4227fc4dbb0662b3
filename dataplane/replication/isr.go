package replication

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
)

// Versions of AlterPartition: 1 names topics by name, 2 by id, 3 carries the broker epochs
// of the set's members (KIP-903).
const (
	alterByName     = 1
	alterByID       = 2
	alterWithEpochs = 3
)

// ISRConfig is the sender's world.
type ISRConfig struct {
	BrokerID int32
	// BrokerEpoch is the czxid of this broker's registration.
	BrokerEpoch func() int64
	// Send brings a request to the controller of the moment, wherever that is; it may block
	// and fails if there is none. It lowers the version to what that controller has: the
	// request is filled in for all. It is called by one goroutine.
	Send func(ctx context.Context, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error)
	// Retry is the pause after a request that failed as a whole, default 50 ms.
	Retry  time.Duration
	Logger *slog.Logger // nil: none
}

// ISRSender sends changes of in-sync sets to the controller: one request in
// flight, and all that came up meanwhile in the next one. It implements
// partition.ISRChanger.
//
// A request that fails as a whole is made again for as long as it takes. What a
// partition's own error means is for the Partition to decide.
type ISRSender struct {
	cfg    ISRConfig
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mu      sync.Mutex
	pending map[protocol.TopicPartition]partition.ISRChange
}

// NewISRSender starts a sender. Close ends it.
func NewISRSender(cfg ISRConfig) *ISRSender {
	if cfg.Retry <= 0 {
		cfg.Retry = 50 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &ISRSender{
		cfg: cfg, ctx: ctx, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1),
		pending: map[protocol.TopicPartition]partition.ISRChange{},
	}
	go s.run()
	return s
}

// Submit queues a change; one that waits for the same partition is replaced,
// since its leader has come to newer state. It does not block.
func (s *ISRSender) Submit(c partition.ISRChange) {
	s.mu.Lock()
	s.pending[c.TP] = c
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close gives up on what is pending, without an answer, and waits for the goroutine.
func (s *ISRSender) Close() {
	s.cancel()
	<-s.done
}

func (s *ISRSender) run() {
	defer close(s.done)
	failures := 0
	for {
		batch := s.take()
		if len(batch) == 0 {
			select {
			case <-s.wake:
			case <-s.ctx.Done():
				return
			}
			continue
		}
		left, err := s.send(batch)
		if s.ctx.Err() != nil {
			return
		}
		if len(left) == 0 {
			failures = 0
			continue
		}
		s.putBack(left)
		if failures++; failures == 1 || failures%100 == 0 {
			s.cfg.Logger.Warn("in-sync set changes not taken by the controller", "partitions", len(left), "failures", failures, "err", err)
		}
		timer := time.NewTimer(s.cfg.Retry)
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (s *ISRSender) take() []partition.ISRChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := make([]partition.ISRChange, 0, len(s.pending))
	for _, c := range s.pending {
		batch = append(batch, c)
	}
	clear(s.pending)
	return batch
}

// putBack queues changes again, except where a newer one has come.
func (s *ISRSender) putBack(cs []partition.ISRChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cs {
		if _, ok := s.pending[c.TP]; !ok {
			s.pending[c.TP] = c
		}
	}
}

// send makes one request and hands out the answers; it returns the changes
// that got none.
func (s *ISRSender) send(batch []partition.ISRChange) (left []partition.ISRChange, err error) {
	req := s.request(batch)
	resp, err := s.cfg.Send(s.ctx, req)
	if err != nil {
		return batch, err
	}
	if resp.ErrorCode != 0 {
		return batch, kerr.ErrorForCode(resp.ErrorCode)
	}
	byID := req.Version >= alterByID
	type key struct {
		name string
		id   protocol.UUID
		n    int32
	}
	answers := map[key]*kmsg.AlterPartitionResponseTopicPartition{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			k := key{n: t.Partitions[j].Partition}
			if byID {
				k.id = t.TopidID
			} else {
				k.name = t.Topic
			}
			answers[k] = &t.Partitions[j]
		}
	}
	for _, c := range batch {
		k := key{n: c.TP.Partition}
		if byID {
			k.id = c.TopicID
		} else {
			k.name = c.TP.Topic
		}
		a := answers[k]
		if a == nil {
			left = append(left, c)
			continue
		}
		c.Done(partition.ISRResult{Leader: a.LeaderID, LeaderEpoch: a.LeaderEpoch, ISR: a.ISR, PartitionEpoch: a.PartitionEpoch}, kerr.ErrorForCode(a.ErrorCode))
	}
	if len(left) > 0 {
		err = errors.New("the controller left partitions out of its answer")
	}
	return left, err
}

func (s *ISRSender) request(batch []partition.ISRChange) *kmsg.AlterPartitionRequest {
	version := int16(alterWithEpochs)
	for i := range batch {
		if batch[i].TopicID == (protocol.UUID{}) {
			version = alterByName
		}
	}
	req := kmsg.NewPtrAlterPartitionRequest()
	req.SetVersion(version)
	req.BrokerID, req.BrokerEpoch = s.cfg.BrokerID, s.cfg.BrokerEpoch()
	at := map[string]int{}
	for i := range batch {
		c := &batch[i]
		j, ok := at[c.TP.Topic]
		if !ok {
			t := kmsg.NewAlterPartitionRequestTopic()
			t.Topic, t.TopicID = c.TP.Topic, c.TopicID
			j = len(req.Topics)
			at[c.TP.Topic] = j
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewAlterPartitionRequestTopicPartition()
		p.Partition, p.LeaderEpoch, p.NewISR, p.PartitionEpoch = c.TP.Partition, c.LeaderEpoch, c.ISR, c.PartitionEpoch
		for i, id := range c.ISR {
			m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			m.BrokerID, m.BrokerEpoch = id, c.Epochs[i]
			p.NewEpochISR = append(p.NewEpochISR, m)
		}
		req.Topics[j].Partitions = append(req.Topics[j].Partitions, p)
	}
	return req
}
