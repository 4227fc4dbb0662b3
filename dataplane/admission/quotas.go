package admission

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// QuotaConfig sets the windows; zero values are Kafka's defaults.
type QuotaConfig struct {
	Samples    int           // quota.window.num; 11
	Window     time.Duration // quota.window.size.seconds; 1 s
	MaxBuckets int           // bound on buckets kept; 65,536. Beyond it clients of one level share a bucket.
	Clock      func() time.Time
}

type kind uint8

const (
	produce kind = iota
	fetch
	request
	kinds
)

// idleAfter is the time after which an unused bucket is forgotten.
const idleAfter = time.Hour

// Quotas keeps the client quotas of one broker. All methods may be called from
// any goroutine.
type Quotas struct {
	n      int
	window int64 // ms
	max    int64
	clock  func() time.Time

	mu     sync.Mutex // serialises Update
	limits atomic.Pointer[limits]

	seed   maphash.Seed
	shards [64]shard
	count  atomic.Int64
}

// limits is an immutable snapshot of what is set.
type limits struct {
	values [kinds]map[Entity]float64
	levels [kinds][levels]bool // whether a level has any value
}

// The levels in the order in which they are tried.
const (
	userClient = iota
	userDefault
	userOnly
	defaultClient
	defaultDefault
	defaultUser
	clientOnly
	clientDefault
	levels
)

type bucketKey struct {
	kind         kind
	user, client string
	overflow     bool
}

type bucket struct {
	mu   sync.Mutex
	rate rate
	used int64 // ms of the last charge
}

type shard struct {
	mu    sync.RWMutex
	m     map[bucketKey]*bucket
	sweep int64 // ms of the next look for idle buckets
}

// NewQuotas makes Quotas without any quota set.
func NewQuotas(cfg QuotaConfig) *Quotas {
	if cfg.Samples <= 0 {
		cfg.Samples = 11
	}
	if cfg.Window <= 0 {
		cfg.Window = time.Second
	}
	if cfg.MaxBuckets <= 0 {
		cfg.MaxBuckets = 65536
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	q := &Quotas{n: cfg.Samples, window: max(1, cfg.Window.Milliseconds()), max: int64(cfg.MaxBuckets), clock: cfg.Clock, seed: maphash.MakeSeed()}
	for i := range q.shards {
		q.shards[i].m = make(map[bucketKey]*bucket)
	}
	q.limits.Store(new(limits))
	return q
}

// Update takes the whole config map of one quota znode (see ParsePath; nil or
// empty when it is gone); keys that are no quotas are ignored. A value that
// does not parse is reported and left out, the others hold.
func (q *Quotas) Update(path string, config map[string]string) error {
	e, ok := ParsePath(path)
	if !ok {
		return fmt.Errorf("admission: %q is not the path of a quota", clip(path))
	}
	var bad []string
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.limits.Load()
	next := new(limits)
	for name, k := range kindOf {
		next.values[k] = maps.Clone(old.values[k])
		text, set := config[name]
		v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if set && (err != nil || math.IsNaN(v)) {
			bad = append(bad, name)
			set = false
		}
		if set {
			if next.values[k] == nil {
				next.values[k] = make(map[Entity]float64)
			}
			next.values[k][e] = v
		} else {
			delete(next.values[k], e)
		}
		for e := range next.values[k] {
			next.levels[k][e.level()] = true
		}
	}
	q.limits.Store(next)
	if bad != nil {
		return fmt.Errorf("admission: %s: bad value of %s", clip(path), strings.Join(bad, ", "))
	}
	return nil
}

// Reset replaces everything by the given znodes (path to config map), as after
// a reload. Bad ones are left out and reported in one error.
func (q *Quotas) Reset(nodes map[string]map[string]string) error {
	q.mu.Lock()
	q.limits.Store(new(limits))
	q.mu.Unlock()
	var first error
	for path, config := range nodes {
		if err := q.Update(path, config); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (e Entity) level() int {
	switch {
	case e.user.kind == named && e.client.kind == named:
		return userClient
	case e.user.kind == named && e.client.kind == byDefault:
		return userDefault
	case e.user.kind == named:
		return userOnly
	case e.user.kind == byDefault && e.client.kind == named:
		return defaultClient
	case e.user.kind == byDefault && e.client.kind == byDefault:
		return defaultDefault
	case e.user.kind == byDefault:
		return defaultUser
	case e.client.kind == named:
		return clientOnly
	}
	return clientDefault
}

// find gives the bound in force and the bucket to charge; ok is false when no
// level is set for this client.
func (l *limits) find(k kind, user, client string) (bound float64, key bucketKey, ok bool) {
	values, set := l.values[k], &l.levels[k]
	if len(values) == 0 {
		return 0, bucketKey{}, false
	}
	u, c := part{named, user}, part{named, client}
	d := part{kind: byDefault}
	for level := 0; level < levels; level++ {
		if !set[level] {
			continue
		}
		var e Entity
		key = bucketKey{kind: k, user: user, client: client}
		switch level {
		case userClient:
			e = Entity{u, c}
		case userDefault:
			e = Entity{u, d}
		case userOnly:
			e, key.client = Entity{user: u}, ""
		case defaultClient:
			e = Entity{d, c}
		case defaultDefault:
			e = Entity{d, d}
		case defaultUser:
			e, key.client = Entity{user: d}, ""
		case clientOnly:
			e, key.user = Entity{client: c}, ""
		case clientDefault:
			e, key.user = Entity{client: d}, ""
		}
		if v, ok := values[e]; ok {
			return v, key, true
		}
	}
	return 0, bucketKey{}, false
}

// Produce charges the size of a produce request and returns how long to mute
// the connection. user is the principal's name without "User:".
func (q *Quotas) Produce(user, clientID string, bytes int) time.Duration {
	return q.charge(produce, user, clientID, float64(bytes), true)
}

// Fetch charges the record bytes of a fetch reply and returns the throttle. If
// it is above 0 the caller answers without records and calls UnrecordFetch.
func (q *Quotas) Fetch(user, clientID string, bytes int) time.Duration {
	return q.charge(fetch, user, clientID, float64(bytes), true)
}

// UnrecordFetch takes back what Fetch charged, since the bytes were not sent.
func (q *Quotas) UnrecordFetch(user, clientID string, bytes int) {
	q.charge(fetch, user, clientID, -float64(bytes), false)
}

// FetchOversize is for a reply that Fetch and UnrecordFetch have refused though
// it holds a single batch: one larger than FetchLimit exceeds the quota however
// long the client has waited, so without this its consumer would stand still for
// ever, as Kafka's does. From rest (nothing above the bound without it) it is
// charged and sent, and throttle is what to mute the connection for after it,
// which keeps the rate. Otherwise throttle is the way back to rest.
func (q *Quotas) FetchOversize(user, clientID string, bytes int) (throttle time.Duration, send bool) {
	if int64(bytes) <= q.FetchLimit(user, clientID) {
		return 0, false
	}
	if t := q.charge(fetch, user, clientID, 0, true); t > 0 {
		return t, false
	}
	return q.charge(fetch, user, clientID, float64(bytes), true), true
}

// FetchLimit is the most record bytes that one fetch of this client should
// return, so that a reply can pass the quota from rest: bound x (samples-1) x
// window. math.MaxInt64 when there is no quota, at least 1.
func (q *Quotas) FetchLimit(user, clientID string) int64 {
	bound, _, ok := q.limits.Load().find(fetch, user, clientID)
	if !ok {
		return math.MaxInt64
	}
	v := bound * float64(q.n-1) * float64(q.window) / 1000
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(1, int64(v))
}

// Request charges the time that a request was handled for (from dequeue to
// local completion) and returns the throttle, at most one window.
func (q *Quotas) Request(user, clientID string, d time.Duration) time.Duration {
	t := q.charge(request, user, clientID, percent(d), true)
	return min(t, time.Duration(q.window)*time.Millisecond)
}

// RequestNetwork adds the time that sending the reply took, without a check.
func (q *Quotas) RequestNetwork(user, clientID string, d time.Duration) {
	q.charge(request, user, clientID, percent(d), false)
}

// RequestsLimited says whether any request quota is set: if not, the caller
// need not measure.
func (q *Quotas) RequestsLimited() bool { return len(q.limits.Load().values[request]) > 0 }

// percent turns time into percent-seconds of one thread.
func percent(d time.Duration) float64 { return d.Seconds() * 100 }

func (q *Quotas) charge(k kind, user, client string, v float64, check bool) time.Duration {
	bound, key, ok := q.limits.Load().find(k, user, client)
	if !ok {
		return 0
	}
	now := q.clock().UnixMilli()
	b := q.bucket(key, now)
	b.mu.Lock()
	defer b.mu.Unlock()
	// Clocks of concurrent charges may cross: a sample's time must not go back.
	now = max(now, b.used)
	b.used = now
	b.rate.record(v, now, q.n, q.window)
	if !check {
		return 0
	}
	perSecond, w := b.rate.measure(now, q.n, q.window)
	return throttle(perSecond, bound, w)
}

func (q *Quotas) bucket(key bucketKey, now int64) *bucket {
	s := &q.shards[maphash.Comparable(q.seed, key)%uint64(len(q.shards))]
	s.mu.RLock()
	b := s.m[key]
	due := now >= s.sweep
	s.mu.RUnlock()
	if b != nil && !due {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now >= s.sweep {
		s.sweep = now + idleAfter.Milliseconds()/10
		for k, b := range s.m {
			b.mu.Lock()
			idle := now-b.used >= idleAfter.Milliseconds()
			b.mu.Unlock()
			if idle {
				delete(s.m, k)
				q.count.Add(-1)
			}
		}
	}
	if b = s.m[key]; b != nil {
		return b
	}
	if q.count.Load() >= q.max && !key.overflow {
		// Client ids are the client's own choice: they must not grow the map
		// without end. The overflow bucket of a shard is always admitted.
		key = bucketKey{kind: key.kind, overflow: true}
		if b = s.m[key]; b != nil {
			return b
		}
	}
	b = &bucket{used: now}
	s.m[key] = b
	q.count.Add(1)
	return b
}

// Buckets is the number of buckets kept, for gauges and tests.
func (q *Quotas) Buckets() int { return int(q.count.Load()) }
