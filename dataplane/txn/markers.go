package txn

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

const (
	// retryPause is the wait before something is tried again that failed for now.
	retryPause = 50 * time.Millisecond
	// goneAfter is how long a partition has to be missing from what the controller tells
	// before it counts as deleted: a broker that has just started, or just heard of a new
	// controller, may know less than there is.
	goneAfter = 2 * time.Second
	// maxMarkers and maxMarkerPartitions bound one request.
	maxMarkers          = 1000
	maxMarkerPartitions = 10_000
	// markerVersion is the newest version of WriteTxnMarkers that is sent (KIP-1228).
	markerVersion = 2
)

// sender brings markers to the leaders of partitions. For each broker there is a queue;
// what has come together while a request was on its way goes with the next one. What
// fails is sorted out anew after a pause: leadership may have moved.
type sender struct {
	c *Coordinator

	mu      sync.Mutex
	brokers map[int32]*markerQueue
	again   []marker // to be sorted out anew
	pausing bool     // a pause is under way, at whose end they are
}

type markerQueue struct {
	waiting []marker
	sending bool // a goroutine takes from it
}

// marker is that partitions have to learn how the transaction was decided.
type marker struct {
	t       *transaction
	tps     []protocol.TopicPartition
	missing time.Time // since when the controller does not tell of them; zero if it does
}

func newSender(c *Coordinator) *sender {
	return &sender{c: c, brokers: make(map[int32]*markerQueue)}
}

// sendMarkers has the decision brought to all partitions of the transaction; the last
// answer completes it. Called with the mutex held, once the decision is stored.
func (t *transaction) sendMarkers(fx *effects) {
	t.pending = true
	if len(t.parts) == 0 {
		t.complete(fx)
		return
	}
	// From here on the set is this transaction's own: it shrinks.
	own := make(partitions, len(t.parts))
	tps := make([]protocol.TopicPartition, 0, len(t.parts))
	for tp := range t.parts {
		own[tp] = struct{}{}
		tps = append(tps, tp)
	}
	t.parts = own
	fx.call(func() { t.c.sender.route([]marker{{t: t, tps: tps}}) })
}

// marked says that the partitions need no marker any more.
func (t *transaction) marked(tps []protocol.TopicPartition) {
	t.do(func(fx *effects) {
		if t.gone != alive || !t.state.prepared() || len(t.parts) == 0 {
			return
		}
		for _, tp := range tps {
			delete(t.parts, tp)
		}
		if len(t.parts) == 0 {
			t.complete(fx)
		}
	})
}

// wire is the marker as it is sent, at this moment's coordinator epoch; false when it is
// not this broker's to send any more.
func (m *marker) wire() (w kmsg.WriteTxnMarkersRequestMarker, ok bool) {
	t := m.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone != alive || !t.state.prepared() {
		return w, false
	}
	w = kmsg.NewWriteTxnMarkersRequestMarker()
	w.ProducerID, w.ProducerEpoch, w.Committed = t.producerID, t.epoch, t.state == statePrepareCommit
	w.CoordinatorEpoch, w.TransactionVersion = t.sh.Epoch(), int8(t.client)
	return w, true
}

// route sorts the markers by the leaders of their partitions, as they are known now.
func (s *sender) route(ms []marker) {
	type dest struct {
		t      *transaction
		broker int32
	}
	const nobody = -1
	now := time.Now()
	at := make(map[dest]*marker)
	var order []dest
	var again []marker
	for _, m := range ms {
		var unknown, gone []protocol.TopicPartition
		for _, tp := range m.tps {
			broker, known := s.c.cfg.Peers.Leader(tp)
			switch {
			case !known && !m.missing.IsZero() && now.Sub(m.missing) >= goneAfter:
				gone = append(gone, tp)
				continue
			case !known:
				unknown = append(unknown, tp)
				continue
			case broker < 0:
				broker = nobody
			}
			d := dest{m.t, broker}
			if at[d] == nil {
				at[d] = &marker{t: m.t}
				order = append(order, d)
			}
			at[d].tps = append(at[d].tps, tp)
		}
		if len(unknown) > 0 {
			if m.missing.IsZero() {
				m.missing = now
			}
			again = append(again, marker{t: m.t, tps: unknown, missing: m.missing})
		}
		if len(gone) > 0 {
			s.c.cfg.Logger.Info("partitions that are gone need no marker", "id", m.t.id, "partitions", gone)
			m.t.marked(gone)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range order {
		if d.broker == nobody {
			again = append(again, *at[d])
			continue
		}
		q := s.brokers[d.broker]
		if q == nil {
			q = &markerQueue{}
			s.brokers[d.broker] = q
		}
		q.waiting = append(q.waiting, *at[d])
		if !q.sending {
			q.sending = s.c.shards.Spawn(func() { s.send(d.broker, q) })
		}
	}
	s.againLocked(again)
}

// retry sorts the markers out anew after a pause.
func (s *sender) retry(ms []marker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.againLocked(ms)
}

func (s *sender) againLocked(ms []marker) {
	if len(ms) == 0 {
		return
	}
	s.again = append(s.again, ms...)
	if s.pausing {
		return
	}
	s.pausing = true
	s.c.later(retryPause, func() {
		s.mu.Lock()
		ms := s.again
		s.again, s.pausing = nil, false
		s.mu.Unlock()
		s.route(ms)
	})
}

// send brings what waits for the broker there until nothing does.
func (s *sender) send(broker int32, q *markerQueue) {
	for {
		ms := s.take(q)
		if len(ms) == 0 {
			return
		}
		if again := s.exchange(broker, ms); len(again) > 0 {
			if s.c.ctx.Err() != nil {
				return
			}
			s.retry(again)
		}
	}
}

// take gives what goes into one request; the sending is over when there is nothing.
func (s *sender) take(q *markerQueue) []marker {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, partitions := 0, 0
	for n < len(q.waiting) && n < maxMarkers && (n == 0 || partitions+len(q.waiting[n].tps) <= maxMarkerPartitions) {
		partitions += len(q.waiting[n].tps)
		n++
	}
	ms := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	if n == 0 {
		q.waiting, q.sending = nil, false
	}
	return ms
}

// exchange makes one request of the markers and gives back what it did not settle.
func (s *sender) exchange(broker int32, ms []marker) (again []marker) {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = markerVersion
	asked := make(map[int64]*marker, len(ms)) // by producer id, of which each id has its own
	for i := range ms {
		m := &ms[i]
		w, ok := m.wire()
		if !ok {
			continue
		}
		if first := asked[w.ProducerID]; first != nil {
			first.tps = append(first.tps, m.tps...) // a retry that came together with another
			continue
		}
		asked[w.ProducerID] = m
		req.Markers = append(req.Markers, w)
	}
	if len(req.Markers) == 0 {
		return nil
	}
	for i := range req.Markers {
		w := &req.Markers[i]
		for _, t := range groupByTopic(asked[w.ProducerID].tps) {
			wt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			wt.Topic, wt.Partitions = t.topic, t.partitions
			w.Topics = append(w.Topics, wt)
		}
	}
	resp, err := s.c.cfg.Peers.WriteMarkers(s.c.ctx, broker, req)
	if err != nil {
		s.c.cfg.Logger.Warn("markers were not brought to their leader", "broker", broker, "transactions", len(req.Markers), "err", err)
		for _, m := range asked {
			again = append(again, *m)
		}
		return again
	}
	for i := range resp.Markers {
		answer := &resp.Markers[i]
		m := asked[answer.ProducerID]
		if m == nil {
			continue
		}
		delete(asked, answer.ProducerID)
		if left := s.settle(broker, m, answer); len(left) > 0 {
			again = append(again, marker{t: m.t, tps: left})
		}
	}
	for _, m := range asked { // not answered
		again = append(again, *m)
	}
	return again
}

// settle takes in the answer to one marker and gives back the partitions that are to be
// asked again.
func (s *sender) settle(broker int32, m *marker, answer *kmsg.WriteTxnMarkersResponseMarker) (left []protocol.TopicPartition) {
	codes := make(map[protocol.TopicPartition]int16, len(m.tps))
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			codes[protocol.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.ErrorCode
		}
	}
	var over []protocol.TopicPartition
	for _, tp := range m.tps {
		code, answered := codes[tp]
		err := kerr.ErrorForCode(code)
		switch {
		case answered && err == nil:
			over = append(over, tp)
			continue
		case err == kerr.InvalidProducerEpoch, err == kerr.UnsupportedForMessageFormat:
			// Nothing of this transaction can be open there: the log has seen a later
			// epoch of the producer, or cannot hold transactions at all.
			s.c.cfg.Logger.Warn("a marker was refused for good", "id", m.t.id, "partition", tp, "broker", broker, "err", err)
			over = append(over, tp)
			continue
		}
		// TRANSACTION_COORDINATOR_FENCED is among these: either this broker leads under a
		// newer epoch already, which the next try has, or it will hear soon that it does not.
		s.c.cfg.Logger.Debug("a marker has to be sent again", "id", m.t.id, "partition", tp, "broker", broker, "answered", answered, "err", err)
		left = append(left, tp)
	}
	if len(over) > 0 {
		m.t.marked(over)
	}
	return left
}

// later runs f after a while, unless Close comes before.
func (c *Coordinator) later(d time.Duration, f func()) {
	time.AfterFunc(d, func() { c.shards.Spawn(f) })
}

// MarkerStats says how many markers are under way, by transaction and broker, and how
// many of them wait for their partition to have a leader.
func (c *Coordinator) MarkerStats() (queued, unknown int) {
	s := c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.brokers {
		queued += len(q.waiting)
	}
	return queued, len(s.again)
}
