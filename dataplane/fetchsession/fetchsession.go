// Package fetchsession keeps incremental fetch sessions (KIP-227): a client
// names its partitions once, then only what changes, and is told only of
// partitions with news.
//
// # Lock order
//
// Cache.mu before session.mu. Cache.mu guards the table and what eviction looks
// at; session.mu the epoch and the partitions.
package fetchsession

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

const (
	initialEpoch = 0  // of a full fetch that asks for a session
	finalEpoch   = -1 // of a full fetch that wants none
	idsFrom      = 13 // first version that names topics by id (KIP-516)
)

// Config of a Cache. Zero values mean the default named with the field.
type Config struct {
	// Slots is max.incremental.fetch.session.cache.slots. Default 1000;
	// negative is none.
	Slots int
	// MaxPartitions bounds the partitions of all sessions together; a session
	// that does not fit is not made, and its client goes on with full
	// fetches. Default 500,000, about 100 MB.
	MaxPartitions int
	// MinEviction is how long a session must be idle before any other may take
	// its place, and how long it must have lived before a larger one may.
	// Default 120 s.
	MinEviction time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Cache holds the sessions of one broker. Kafka cuts its cache into eight
// shards; ours is held for some hundred nanoseconds a fetch and needs none.
type Cache struct {
	cfg Config

	mu         sync.Mutex
	sessions   map[int32]*session
	partitions int // of all sessions
}

type session struct {
	id         int32
	privileged bool
	usesIDs    bool
	created    time.Time
	// Guarded by Cache.mu.
	lastUsed time.Time
	size     int

	mu    sync.Mutex
	epoch int32
	parts map[key]*cached
	order []*cached
	// To be used again: of the last context, and of rotate.
	spare  []Part
	served []*cached
}

// key names a partition: by id where ids are used, else by name.
type key struct {
	topic     string
	id        protocol.UUID
	partition int32
}

// cached is a partition of a session with what the client was last told.
type cached struct {
	Part
	highWatermark, logStart int64
	gone                    bool
}

func (p *Part) key() key {
	if p.TopicID != (protocol.UUID{}) {
		return key{id: p.TopicID, partition: p.Partition}
	}
	return key{topic: p.Topic, partition: p.Partition}
}

// New makes an empty cache.
func New(cfg Config) *Cache {
	if cfg.Slots == 0 {
		cfg.Slots = 1000
	}
	if cfg.MaxPartitions == 0 {
		cfg.MaxPartitions = 500_000
	}
	if cfg.MinEviction == 0 {
		cfg.MinEviction = 120 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Cache{cfg: cfg, sessions: map[int32]*session{}}
}

// Begin takes a request into its session. resolve gives the name of a topic id
// (v13+). privileged is true for followers, whose sessions others cannot
// displace. The error is FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH
// or FETCH_SESSION_TOPIC_ID_ERROR, for the top of an otherwise empty reply.
func (c *Cache) Begin(req *kmsg.FetchRequest, privileged bool, resolve func(protocol.UUID) (string, bool)) (*Context, error) {
	x := contexts.Get().(*Context)
	x.cache, x.privileged, x.usesIDs = c, privileged, req.Version >= idsFrom
	switch req.SessionEpoch {
	case initialEpoch, finalEpoch:
		if req.SessionID != 0 {
			c.remove(req.SessionID)
		}
		x.wantsSession = req.SessionEpoch == initialEpoch
		x.own = requested(x.own, req, resolve)
		x.parts = unique(x.own)
		return x, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[req.SessionID]
	if s == nil {
		return nil, kerr.FetchSessionIDNotFound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != req.SessionEpoch {
		return nil, kerr.InvalidFetchSessionEpoch
	}
	if s.usesIDs != x.usesIDs {
		return nil, kerr.FetchSessionTopicIDError
	}
	asked := requested(nil, req, resolve)
	s.update(asked, req)
	c.partitions += len(s.order) - s.size
	s.size = len(s.order)
	switch {
	case s.size == 0:
		// Nothing is left: the session ends and this request stands alone.
		c.drop(s)
		return x, nil
	case c.partitions > c.cfg.MaxPartitions:
		c.drop(s)
		return nil, kerr.FetchSessionIDNotFound
	}
	s.lastUsed = c.cfg.Now()
	s.epoch = nextEpoch(s.epoch)
	x.session, x.epoch = s, s.epoch
	x.cached = append(x.cached, s.order...)
	x.parts = s.snapshot(resolve)
	return x, nil
}

// Len is the number of sessions.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)
}

func (c *Cache) remove(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[id]; s != nil {
		c.drop(s)
	}
}

// drop takes a session out; c.mu is held.
func (c *Cache) drop(s *session) {
	delete(c.sessions, s.id)
	c.partitions -= s.size
}

// create makes a session of what a full fetch has been answered, if there is
// a place for it; 0 if not.
func (c *Cache) create(x *Context, results []protocol.FetchPartition) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Now()
	if c.partitions+len(x.parts) > c.cfg.MaxPartitions || !c.makeRoom(now, x.privileged, len(x.parts)) {
		return 0
	}
	s := &session{privileged: x.privileged, usesIDs: x.usesIDs, created: now, lastUsed: now, size: len(x.parts),
		epoch: nextEpoch(initialEpoch), parts: make(map[key]*cached, len(x.parts)), order: make([]*cached, 0, len(x.parts))}
	for s.id == 0 || c.sessions[s.id] != nil {
		s.id = rand.Int32() // not guessable from others; above 0
	}
	all := make([]cached, len(x.parts))
	for i := range x.parts {
		p := &all[i]
		*p = cached{Part: x.parts[i]}
		p.tell(&results[i])
		s.parts[p.key()] = p
		s.order = append(s.order, p)
	}
	c.sessions[s.id] = s
	c.partitions += s.size
	return s.id
}

// makeRoom finds a place for a session. A session idle for long gives way to any
// other. Else the least worth of those that may be displaced does, if it is not
// worth more than the new one: a follower's is worth more than a client's, then
// the larger more. Clients' sessions may be displaced by followers at any
// time, by others once they have lived long enough.
func (c *Cache) makeRoom(now time.Time, privileged bool, size int) bool {
	if len(c.sessions) < c.cfg.Slots {
		return true
	}
	var oldest, least *session
	for _, s := range c.sessions {
		if oldest == nil || s.lastUsed.Before(oldest.lastUsed) {
			oldest = s
		}
		lived := now.Sub(s.created) > c.cfg.MinEviction
		if lived || privileged && !s.privileged {
			if least == nil || worth(s.privileged, s.size, least.privileged, least.size) < 0 {
				least = s
			}
		}
	}
	victim := oldest
	if oldest == nil || now.Sub(oldest.lastUsed) <= c.cfg.MinEviction {
		if least == nil || worth(privileged, size, least.privileged, least.size) < 0 {
			return false
		}
		victim = least
	}
	c.drop(victim)
	return true
}

func worth(p1 bool, n1 int, p2 bool, n2 int) int {
	switch {
	case p1 == p2:
		return n1 - n2
	case p1:
		return 1
	}
	return -1
}

// update adds, changes and forgets partitions; s.mu is held.
func (s *session) update(asked []Part, req *kmsg.FetchRequest) {
	for _, p := range asked {
		if have := s.parts[p.key()]; have != nil {
			name := have.Topic
			have.Part = p
			if p.Topic == "" {
				have.Topic = name
			}
			continue
		}
		// The offsets are of no log, so that the first answer has news.
		n := &cached{Part: p, highWatermark: -1, logStart: -1}
		s.parts[p.key()] = n
		s.order = append(s.order, n)
	}
	forgot := false
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, n := range t.Partitions {
			p := Part{Topic: t.Topic, TopicID: t.TopicID, Partition: n}
			if have := s.parts[p.key()]; have != nil {
				delete(s.parts, p.key())
				have.gone, forgot = true, true
			}
		}
	}
	if forgot {
		kept := s.order[:0]
		for _, p := range s.order {
			if !p.gone {
				kept = append(kept, p)
			}
		}
		clear(s.order[len(kept):])
		s.order = kept
	}
}

// snapshot lists the session's partitions for one request; s.mu is held.
func (s *session) snapshot(resolve func(protocol.UUID) (string, bool)) []Part {
	parts := s.spare[:0]
	s.spare = nil
	for _, p := range s.order {
		if p.Topic == "" && resolve != nil {
			p.Topic, _ = resolve(p.TopicID)
		}
		parts = append(parts, p.Part)
	}
	return parts
}

// requested lists the partitions that the request itself names.
func requested(dst []Part, req *kmsg.FetchRequest, resolve func(protocol.UUID) (string, bool)) []Part {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if n == 0 {
		return dst
	}
	if cap(dst) < n {
		dst = make([]Part, 0, n)
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		name := t.Topic
		if req.Version >= idsFrom && resolve != nil {
			name, _ = resolve(t.TopicID)
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			dst = append(dst, Part{
				Topic: name, TopicID: t.TopicID, Partition: p.Partition, CurrentLeaderEpoch: p.CurrentLeaderEpoch,
				LastFetchedEpoch: p.LastFetchedEpoch, FetchOffset: p.FetchOffset, LogStartOffset: p.LogStartOffset,
				MaxBytes: p.PartitionMaxBytes,
			})
		}
	}
	return dst
}

// unique keeps the last naming of a partition in the place of the first.
func unique(parts []Part) []Part {
	ascending := true
	for i := 1; i < len(parts) && ascending; i++ {
		a, b := &parts[i-1], &parts[i]
		ascending = a.Topic == b.Topic && a.TopicID == b.TopicID && a.Partition < b.Partition
	}
	if ascending {
		return parts
	}
	at := make(map[key]int, len(parts))
	kept := parts[:0]
	for _, p := range parts {
		if i, dup := at[p.key()]; dup {
			kept[i] = p
			continue
		}
		at[p.key()] = len(kept)
		kept = append(kept, p)
	}
	return kept
}

// nextEpoch counts on from 1 after the largest, since 0 and -1 have meanings.
func nextEpoch(e int32) int32 {
	if e < 0 {
		return finalEpoch
	}
	if e == 1<<31-1 {
		return 1
	}
	return e + 1
}
