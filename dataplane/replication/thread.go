package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/partition"
	"penstock/dataplane/peer"
	"penstock/dataplane/protocol"
)

// thread copies from one leader broker over one connection.
type thread struct {
	f    *Fetchers
	key  threadKey
	wake chan struct{}

	mu    sync.Mutex
	parts map[protocol.TopicPartition]*copying
	order []*copying // whose turn it is; who got data goes to the end
	addr  string     // as the controller named it last
	// resharing says that the number of threads has changed: see Fetchers.handOver.
	resharing bool
	// The fetch that waits for its answer, if any, and a timer that will cut it short.
	cancelFetch context.CancelFunc
	interrupt   *time.Timer
	interrupted bool
	added       bool // a partition since the batch of that fetch was put together
	// polls counts the fetches. gone are the partitions that were taken away since that
	// batch was put together: most are back at once, under another epoch of this leader.
	polls uint64
	gone  map[protocol.TopicPartition]*copying

	// Below is the run goroutine's own.
	conn     Conn
	session  session
	failures int
	refusal  error      // of the answer as a whole
	lost     []*copying // that the answer has OFFSET_OUT_OF_RANGE for
	// unheard says that something in the answer could not be taken in. The leader's
	// session has it as told, a new watermark or log start as well, and would keep silent
	// about it until the next one.
	unheard bool
}

// copying is one partition in a thread.
type copying struct {
	tp       protocol.TopicPartition
	target   partition.FetchTarget
	topicID  protocol.UUID
	failures int
	notUntil time.Time
	asked    partition.FetchState // in the request under way
	poll     uint64               // the last fetch that it was part of
	heralds  bool                 // the leader's first answer is waited for: see Partition.AwaitsLeader
	refused  bool                 // the answer had an error for it
}

func newThread(f *Fetchers, key threadKey) *thread {
	return &thread{
		f: f, key: key, wake: make(chan struct{}, 1), parts: map[protocol.TopicPartition]*copying{}, gone: map[protocol.TopicPartition]*copying{},
	}
}

func (t *thread) add(tp protocol.TopicPartition, target partition.FetchTarget) {
	c := &copying{tp: tp, target: target, topicID: target.Partition.TopicID(), heralds: target.Partition.AwaitsLeader()}
	t.mu.Lock()
	old := t.parts[tp]
	if old != nil {
		t.drop(old)
	} else {
		old = t.gone[tp]
	}
	t.parts[tp] = c
	t.order = append(t.order, c)
	if target.Addr != "" {
		t.addr = target.Addr
	}
	// The leader ends a poll that names an epoch which is over, when it hears of the next
	// one: there is no need to give up the connection.
	if old == nil || t.cancelFetch == nil || old.poll != t.polls || old.topicID != c.topicID {
		t.added = true
		t.hurry()
	}
	t.mu.Unlock()
	t.signal()
}

func (t *thread) reshare() {
	t.mu.Lock()
	t.resharing = true
	t.hurry()
	t.mu.Unlock()
	t.signal()
}

func (t *thread) toReshare() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.resharing
	t.resharing = false
	return was
}

func (t *thread) targets() []partition.FetchTarget {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]partition.FetchTarget, 0, len(t.parts))
	for _, c := range t.parts {
		out = append(out, c.target)
	}
	return out
}

// patience is how long a new partition waits for the fetch under way, which
// may be a long poll of hundreds of milliseconds: the first acks=-1 produce
// after a creation or a fail-over would wait as long. Partitions that come
// together share one interruption.
const patience = 5 * time.Millisecond

// hurry cuts the fetch short that waits for its answer, if there is one. With mu held.
func (t *thread) hurry() {
	if t.cancelFetch != nil && t.interrupt == nil {
		t.interrupt = time.AfterFunc(patience, t.cutShort)
	}
}

// cutShort gives up the fetch under way, with its connection: its reply could
// come at any later time. What it may have brought is fetched again.
func (t *thread) cutShort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.interrupt = nil
	if t.cancelFetch != nil {
		t.interrupted = true
		t.cancelFetch()
	}
}

// fetch makes the request and takes the answer in; interrupted says that it was cut short.
func (t *thread) fetch(req *kmsg.FetchRequest, batch []*copying) (interrupted bool, err error) {
	ctx, cancel := context.WithCancel(t.f.ctx)
	defer cancel()
	t.mu.Lock()
	t.cancelFetch = cancel
	t.polls++
	for _, c := range batch {
		c.poll = t.polls
	}
	if t.added || t.resharing { // while we connected, say
		t.hurry()
	}
	t.mu.Unlock()
	err = t.conn.DoStream(ctx, req, func(b *peer.Body) error {
		t.arrived() // asking again would take longer than the rest of it
		return t.receive(b, req.Version)
	})
	t.arrived()
	t.mu.Lock()
	defer t.mu.Unlock()
	interrupted = t.interrupted
	t.interrupted = false
	return interrupted, err
}

// arrived ends the time in which a fetch can be cut short.
func (t *thread) arrived() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cancelFetch = nil
	if t.interrupt != nil {
		t.interrupt.Stop()
		t.interrupt = nil
	}
}

func (t *thread) remove(tp protocol.TopicPartition) {
	t.mu.Lock()
	if c := t.parts[tp]; c != nil {
		t.drop(c)
		t.gone[tp] = c
	}
	t.mu.Unlock()
	t.signal()
}

// drop forgets c unless a newer target has replaced it. With mu held.
func (t *thread) drop(c *copying) {
	if t.parts[c.tp] == c {
		delete(t.parts, c.tp)
		t.order = slices.DeleteFunc(t.order, func(o *copying) bool { return o == c })
	}
}

func (t *thread) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run fetches until the fetchers are closed, or need one thread less.
func (t *thread) run() {
	defer t.disconnect()
	for t.f.ctx.Err() == nil {
		if t.toReshare() && t.f.handOver(t) {
			return
		}
		batch, next := t.ready(time.Now())
		if len(batch) == 0 {
			t.sleep(next)
			continue
		}
		if err := t.round(batch, next); err != nil && t.f.ctx.Err() == nil {
			t.failures++
			d := t.pause(t.failures)
			if t.failures == 1 || t.failures%30 == 0 {
				t.f.cfg.Logger.Warn("fetching from leader failed", "leader", t.key.leader, "failures", t.failures, "retry_in", d, "err", err)
			}
			t.disconnect()
			t.rest(d)
		}
	}
}

// ready lists the partitions whose turn it is; next is the time when the first
// pause of the others ends (zero: none has one).
func (t *thread) ready(now time.Time) (batch []*copying, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.added = false
	clear(t.gone)
	for _, c := range t.order {
		if !c.notUntil.After(now) {
			batch = append(batch, c)
		} else if next.IsZero() || c.notUntil.Before(next) {
			next = c.notUntil
		}
	}
	return batch, next
}

// keepFor is how long a thread that has nothing to copy keeps its connection: a leader whose epoch
// has gone up is left by all its followers, until they hear of it, too.
const keepFor = time.Second

// sleep waits for news or until the time given. With nothing at all to copy
// the connection is given up after a while.
func (t *thread) sleep(until time.Time) {
	idle := until.IsZero()
	var alarm <-chan time.Time
	if !idle || t.conn != nil {
		d := keepFor
		if !idle {
			d = time.Until(until)
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case <-t.wake:
	case <-alarm:
		if idle {
			t.disconnect()
		}
	case <-t.f.ctx.Done():
	}
}

// rest waits whatever comes in.
func (t *thread) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.f.ctx.Done():
	}
}

func (t *thread) pause(failures int) time.Duration {
	return min(firstBackoff<<min(failures-1, 10), t.f.cfg.Backoff)
}

func (t *thread) disconnect() {
	if t.conn != nil {
		_ = t.conn.Close()
		t.conn = nil
	}
	t.session.reset()
}

func (t *thread) connect() error {
	if t.conn != nil {
		return nil
	}
	t.mu.Lock()
	addr := t.addr
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.f.ctx, t.f.cfg.RequestTimeout)
	defer cancel()
	conn, err := t.f.cfg.Dial(ctx, t.key.leader, addr)
	if err != nil {
		return fmt.Errorf("connecting to broker %d: %w", t.key.leader, err)
	}
	t.conn = conn
	newest, err := conn.Newest(ctx, (*kmsg.FetchRequest)(nil).Key(), fetchWithEpoch)
	if err == nil && newest < fetchByName {
		err = fmt.Errorf("it has Fetch up to version %d only", newest)
	}
	if err != nil {
		t.disconnect()
		return fmt.Errorf("the versions of broker %d: %w", t.key.leader, err)
	}
	t.session.newest = newest
	return nil
}

// round is one fetch: request, and answer, which is appended as it comes. It does not
// wait for data longer than until next, when another partition's pause ends. An error
// is one of the connection or of the answer as a whole.
func (t *thread) round(batch []*copying, next time.Time) error {
	batch, next = t.prepare(batch, next)
	if len(batch) == 0 {
		return nil
	}
	if err := t.connect(); err != nil {
		return err
	}
	cfg := &t.f.cfg
	req := t.session.request(batch, cfg)
	if !next.IsZero() {
		req.MaxWaitMillis = min(req.MaxWaitMillis, int32(max(time.Until(next), 0).Milliseconds())+1)
	}
	if slices.ContainsFunc(batch, func(c *copying) bool { return c.heralds }) {
		req.MaxWaitMillis = 0
	}
	clear(t.lost)
	t.lost = t.lost[:0]
	interrupted, err := t.fetch(req, batch)
	if interrupted && err != nil {
		t.disconnect()
		return nil
	}
	if err != nil {
		return fmt.Errorf("fetching from broker %d: %w", t.key.leader, err)
	}
	if err := t.refusal; err != nil {
		t.session.reset()
		if errors.Is(err, kerr.FetchSessionIDNotFound) || errors.Is(err, kerr.InvalidFetchSessionEpoch) || errors.Is(err, kerr.FetchSessionTopicIDError) {
			return nil // the next request opens a new session
		}
		return err
	}
	t.failures = 0
	for _, c := range t.lost {
		t.take(c, outOfRange)
	}
	for _, c := range batch { // also those of which a session has nothing to say
		if c.heralds && !c.refused {
			c.heralds = false
			c.target.Partition.LeaderServes(c.target.LeaderEpoch)
		}
	}
	if t.unheard {
		t.unheard = false
		t.session.reset()
	}
	return nil
}

// prepare asks each partition where to go on, drops those that no longer follow, and
// leaves out those that are throttled, which pause; next is then when the first of all
// pauses ends.
func (t *thread) prepare(batch []*copying, next time.Time) ([]*copying, time.Time) {
	out := batch[:0]
	for _, c := range batch {
		if d := c.target.Partition.ThrottledFor(); d > 0 {
			until := time.Now().Add(d)
			t.mu.Lock()
			c.notUntil = until
			t.mu.Unlock()
			if next.IsZero() || until.Before(next) {
				next = until
			}
			continue
		}
		st, err := c.target.Partition.FetchState(c.target.LeaderEpoch)
		if err == nil && st.LastEpoch < 0 && st.Offset > st.LogStartOffset {
			// Without epochs the leader cannot say where the logs part.
			if err = c.target.Partition.TruncateToHighWatermark(c.target.LeaderEpoch); err == nil {
				st, err = c.target.Partition.FetchState(c.target.LeaderEpoch)
			}
		}
		if err != nil {
			t.mu.Lock()
			t.drop(c)
			t.mu.Unlock()
			continue
		}
		c.asked, c.refused = st, false
		out = append(out, c)
	}
	return out, next
}

// take handles one partition's part of the answer.
func (t *thread) take(c *copying, r *kmsg.FetchResponseTopicPartition) {
	p, epoch := c.target.Partition, c.target.LeaderEpoch
	err := kerr.ErrorForCode(r.ErrorCode)
	c.refused = err != nil
	n := 0
	switch {
	case err == nil && (r.DivergingEpoch.Epoch >= 0 || r.DivergingEpoch.EndOffset >= 0):
		err = p.TruncateDiverging(epoch, r.DivergingEpoch.Epoch, r.DivergingEpoch.EndOffset)
	case err == nil:
		n, err = p.AppendFollower(epoch, c.asked.Offset, r.RecordBatches, r.HighWatermark, r.LogStartOffset)
	case errors.Is(err, kerr.OffsetOutOfRange):
		err = t.outOfRange(c)
	}
	t.unheard = t.unheard || err != nil && r.ErrorCode == 0
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		c.failures = 0
		if n > 0 && t.parts[c.tp] == c && len(t.order) > 1 {
			t.order = append(slices.DeleteFunc(t.order, func(o *copying) bool { return o == c }), c)
		}
	case errors.Is(err, partition.ErrStale):
		// Seen by FetchState before the next request.
	case errors.Is(err, kerr.FencedLeaderEpoch), errors.Is(err, kerr.KafkaStorageError) && r.ErrorCode == 0:
		// The controller's next order sets it going again.
		t.f.cfg.Logger.Info("follower stops fetching", "partition", c.tp.String(), "leader", t.key.leader, "epoch", epoch, "err", err)
		t.drop(c)
	default:
		c.failures++
		d := t.pause(c.failures)
		c.notUntil = time.Now().Add(d)
		if c.failures == 5 || c.failures%60 == 0 {
			t.f.cfg.Logger.Warn("follower cannot fetch", "partition", c.tp.String(), "leader", t.key.leader, "epoch", epoch,
				"offset", c.asked.Offset, "failures", c.failures, "err", err)
		}
	}
}

// outOfRange finds a follower's place again when the leader does not have the
// offset: a leader that ends lower (after an unclean election) cuts the
// follower's log; one that starts higher makes it start over there; else the
// offset has come into range meanwhile.
func (t *thread) outOfRange(c *copying) error {
	p, epoch := c.target.Partition, c.target.LeaderEpoch
	end, err := t.offset(c, partition.LatestTimestamp)
	if err != nil {
		return err
	}
	if end < c.asked.Offset {
		t.f.cfg.Logger.Warn("leader's log ends below the follower's", "partition", c.tp.String(), "leader", t.key.leader, "leader_end", end, "own_end", c.asked.Offset)
		return p.TruncateTo(epoch, end)
	}
	start, err := t.offset(c, partition.EarliestTimestamp)
	if err != nil {
		return err
	}
	if start > c.asked.Offset {
		t.f.cfg.Logger.Warn("leader's log starts above the follower's end", "partition", c.tp.String(), "leader", t.key.leader, "leader_start", start, "own_end", c.asked.Offset)
		return p.TruncateFullyAndStartAt(epoch, start)
	}
	return nil
}

func (t *thread) offset(c *copying, timestamp int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(6)
	req.ReplicaID = t.f.cfg.BrokerID
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = c.tp.Topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = c.tp.Partition, c.target.LeaderEpoch, timestamp
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	ctx, cancel := context.WithTimeout(t.f.ctx, t.f.cfg.RequestTimeout)
	defer cancel()
	kresp, err := t.conn.Do(ctx, req)
	if err != nil {
		return 0, err
	}
	resp, ok := kresp.(*kmsg.ListOffsetsResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("ListOffsets answer does not have the one partition asked for")
	}
	if err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil {
		return 0, err
	}
	return resp.Topics[0].Partitions[0].Offset, nil
}
