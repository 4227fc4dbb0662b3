package handler

import (
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/fetchsession"
	"penstock/dataplane/listener"
	"penstock/dataplane/metadata"
	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
)

// maxFetchBytes bounds the records of one reply, so that with what stands around them,
// and one batch more (KIP-74), they fit a frame.
const maxFetchBytes = 1 << 30

// Fetch (key 1), versions 4 to 17.
//
// Sessions (KIP-227), topic ids from v13, the follower's identity in a tagged
// field from v15, current leaders from v16 (KIP-951). Record data leaves as
// file ranges; the listener sends them.
//
// A consumer that names its rack (v11+) is sent to a replica there, if the broker is
// set to do so (KIP-392). Followers serve consumers in any case, up to their own high
// watermark.
//
// A consumer over its byte quota gets an empty reply with the throttle time,
// which leaves its session as it was; nothing is charged for it. Its limits are
// first capped to what its quota allows in one window, so that a small quota
// still progresses (KAFKA-9677); a single batch above even that is sent from
// rest, and waited for afterwards.
func (h *Handler) fetch(r *listener.Request) {
	req := r.Body.(*kmsg.FetchRequest)
	replica, replicaEpoch := req.ReplicaID, int64(-1)
	if req.Version >= 15 {
		replica, replicaEpoch = req.ReplicaState.ID, req.ReplicaState.Epoch
	}
	follower := replica >= 0
	// As in Kafka one who only says to be a follower is refused by partition. Its
	// session must not be worth a follower's, or it would displace others.
	impostor := follower && !h.authorizeCluster(r, kmsg.ACLOperationClusterAction)
	image := h.Metadata.Image()
	r.Exempt = follower && !impostor
	session, err := h.Sessions.Begin(req, follower && !impostor, image.TopicName)
	if err != nil {
		h.fetchFailed(r, err)
		return
	}

	maxBytes, minBytes := min(int(req.MaxBytes), maxFetchBytes), int(req.MinBytes)
	if !follower {
		maxBytes = min(maxBytes, h.Broker().FetchMaxBytes)
		if limit := h.Quotas.FetchLimit(User(r.Conn), r.ClientID); limit < int64(maxBytes) {
			maxBytes = int(limit)
		}
		minBytes = min(minBytes, maxBytes)
	}
	parts := session.Parts()
	x := newFetching(h, r, session)
	x.follower, x.readCommitted = follower, req.IsolationLevel == 1 && !follower
	x.answers = protocol.Again(x.answers, len(parts))
	for i := range parts {
		p := &parts[i]
		x.answers[i] = protocol.NewFetchPartition(p.Partition)
		if err := h.fetchRefused(r, p, follower, impostor, x.allowed); err != nil {
			x.answers[i].ErrorCode, x.answers[i].HighWatermark = code(err), -1
			continue
		}
		x.ask = append(x.ask, partition.FetchPart{
			TP: partition.TopicPartition{Topic: p.Topic, Partition: p.Partition}, TopicID: p.TopicID,
			Offset: p.FetchOffset, LogStartOffset: p.LogStartOffset, CurrentLeaderEpoch: p.CurrentLeaderEpoch,
			LastFetchedEpoch: p.LastFetchedEpoch, MaxBytes: int(p.MaxBytes),
		})
		x.asked = append(x.asked, i)
	}
	wait := time.Duration(req.MaxWaitMillis) * time.Millisecond
	if idle := h.Broker().ConnectionsMaxIdle; idle > 0 {
		wait = min(wait, idle) // nobody reads from a connection meanwhile, nor notices its end
	}
	if len(x.asked) < len(parts) || len(parts) == 0 {
		wait = 0 // what was refused is news that must not wait; nothing asked has nothing to wait for
	}
	if len(x.ask) == 0 {
		x.done(nil)
		return
	}
	h.Partitions.Fetch(partition.FetchRequest{
		ReplicaID: replica, ReplicaEpoch: replicaEpoch, MaxWait: wait, MinBytes: minBytes, MaxBytes: maxBytes,
		ReadCommitted: x.readCommitted, AllowFollower: req.Version >= 11, Near: h.near(r, req, image), Parts: x.ask, Results: x.results,
	}, x.callback)
	// x may be another request's by now. A long poll may wait for as long as its client likes: not with memory that
	// others could use.
	r.ReleaseBody()
}

// near tells which brokers are in the consumer's rack; nil where that does not count.
func (h *Handler) near(r *listener.Request, req *kmsg.FetchRequest, image *metadata.Image) func(int32) bool {
	if !h.Broker().RackAwareReads || req.Version < 11 || req.Rack == "" {
		return nil
	}
	rack, name := req.Rack, r.Conn.Listener()
	return func(id int32) bool {
		b := image.Brokers[id]
		if b == nil || b.Rack == nil || *b.Rack != rack {
			return false
		}
		_, ok := b.Endpoint(name)
		return ok
	}
}

// fetchRefused says why a partition is not even looked at.
func (h *Handler) fetchRefused(r *listener.Request, p *fetchsession.Part, follower, impostor bool, allowed map[string]bool) error {
	if p.Topic == "" {
		return unknown(h.Metadata.Image(), kerr.UnknownTopicID, kerr.NotLeaderForPartition)
	}
	if impostor {
		return kerr.TopicAuthorizationFailed
	}
	if follower {
		return nil // ClusterAction covers all topics
	}
	ok, asked := allowed[p.Topic]
	if !asked {
		ok = h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, p.Topic)
		allowed[p.Topic] = ok
	}
	if !ok {
		return kerr.TopicAuthorizationFailed
	}
	return nil
}

func (h *Handler) fetchFailed(r *listener.Request, err error) {
	r.ReplyFetch(&protocol.FetchResponse{ErrorCode: code(err)}, func() {}, nil)
}

// fetching is one Fetch request between its reading and its reply.
type fetching struct {
	h        *Handler
	r        *listener.Request
	session  *fetchsession.Context
	follower bool
	// readCommitted replies name the aborted transactions, if only by an empty list,
	// instead of leaving the list out.
	readCommitted bool
	answers       []protocol.FetchPartition // in the order of the session's parts
	asked         []int                     // which of them the log was asked for
	ask           []partition.FetchPart     // for what
	results       []partition.FetchResult
	allowed       map[string]bool // topics; a session may name thousands of partitions of few
	principal     string          // whose usage it is

	// The methods done, release and sent, made once.
	callback func([]partition.FetchResult)
	cleanup  func()
	onSent   func(int64)
}

var fetchings sync.Pool

// maxPooledFetch bounds the partitions of those whose memory is kept.
const maxPooledFetch = 512

func newFetching(h *Handler, r *listener.Request, session *fetchsession.Context) *fetching {
	x, _ := fetchings.Get().(*fetching)
	if x == nil {
		x = &fetching{allowed: map[string]bool{}}
		x.callback, x.cleanup, x.onSent = x.done, x.release, x.sent
	}
	x.h, x.r, x.session, x.principal = h, r, session, ""
	return x
}

// release ends the fetch when its files are no longer needed.
func (x *fetching) release() {
	for i := range x.results {
		x.results[i].Slice.Close()
	}
	x.session.Release()
	if cap(x.answers) > maxPooledFetch {
		return
	}
	clear(x.answers) // they hold files, as do the results
	clear(x.results)
	clear(x.allowed)
	x.answers, x.asked, x.ask, x.results = x.answers[:0], x.asked[:0], x.ask[:0], x.results[:0]
	x.h, x.r, x.session = nil, nil, nil
	fetchings.Put(x)
}

func (x *fetching) sent(n int64) { x.h.Fetched(x.principal, n, 0) }

func (x *fetching) done(results []partition.FetchResult) {
	if x.follower || !x.h.parting() {
		x.reply(results)
		return
	}
	away := notLed(results, func(r *partition.FetchResult) (partition.TopicPartition, error) { return r.TP, r.Err })
	x.h.sendAway(away, func() { x.reply(results) })
}

func (x *fetching) reply(results []partition.FetchResult) {
	x.results = results
	for i := range results {
		res, a := &results[i], &x.answers[x.asked[i]]
		a.ErrorCode = code(res.Err)
		a.HighWatermark, a.LastStableOffset, a.LogStartOffset = res.HighWatermark, res.LastStableOffset, res.LogStartOffset
		a.DivergingEpoch, a.DivergingEndOffset = res.DivergingEpoch, res.DivergingEndOffset
		a.PreferredReadReplica = res.Preferred
		if res.Err != nil {
			a.LeaderID, a.LeaderEpoch = x.h.ledBy(res.TP, res.Err, res.Leader, res.LeaderEpoch)
		}
		if x.readCommitted && res.Err == nil {
			a.AbortedTransactions = abortedList(res.Aborted)
		}
		if res.Slice.Len > 0 {
			a.Records = protocol.Chunk{File: res.Slice.File, Pos: res.Slice.Pos, Len: res.Slice.Len}
		}
	}
	if x.follower {
		resp := x.session.Reply(x.answers)
		x.r.ReplyFetch(resp, x.cleanup, nil)
		return
	}
	x.principal = x.h.metered(x.r.Conn)
	u, client := User(x.r.Conn), x.r.ClientID
	var bytes int64
	for i := range x.answers {
		bytes += int64(x.answers[i].Records.Size())
	}
	// What is charged is the reply's size; the record data is all of it that
	// grows, and the rest is known only once the session has filtered it.
	charge := int(min(bytes, math.MaxInt32))
	over, local := x.h.Quotas.Fetch(u, client, charge), x.r.LocalDone()
	throttle, send := max(over, local), over == 0 && local == 0
	if !send {
		x.h.Quotas.UnrecordFetch(u, client, charge)
		if local == 0 && bytes > x.h.Quotas.FetchLimit(u, client) {
			throttle, send = x.h.Quotas.FetchOversize(u, client, charge)
			x.r.AddThrottle(throttle)
		}
	}
	if !send {
		x.r.AddThrottle(throttle)
		x.r.ReplyFetch(x.session.Throttled(), x.cleanup, nil)
		return
	}
	resp := x.session.Reply(x.answers)
	if x.r.Version >= 16 {
		x.addLeaders(resp)
	}
	var sent func(int64)
	if bytes > 0 && x.h.Fetched != nil {
		sent = x.onSent
	}
	x.r.ReplyFetch(resp, x.cleanup, sent)
}

// abortedList is never nil: null would say that the reader did not ask.
func abortedList(aborted []commitlog.AbortedTransaction) []kmsg.FetchResponseTopicPartitionAbortedTransaction {
	out := make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, len(aborted))
	for i, a := range aborted {
		out[i].ProducerID, out[i].FirstOffset = a.ProducerID, a.FirstOffset
	}
	return out
}

// addLeaders names the brokers that lead what was asked for here in vain.
func (x *fetching) addLeaders(resp *protocol.FetchResponse) {
	image := x.h.Metadata.Image()
	named := map[int32]bool{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.LeaderID < 0 || named[p.LeaderID] {
				continue
			}
			named[p.LeaderID] = true
			b := image.Brokers[p.LeaderID]
			if b == nil {
				continue
			}
			if e, ok := b.Endpoint(x.r.Conn.Listener()); ok {
				out := kmsg.NewFetchResponseBroker()
				out.NodeID, out.Host, out.Port, out.Rack = b.ID, e.Host, e.Port, b.Rack
				resp.Brokers = append(resp.Brokers, out)
			}
		}
	}
}
