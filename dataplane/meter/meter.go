package meter

import (
	"context"
	"errors"
	"log/slog"
	"math/bits"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"penstock/dataplane/protocol"
	"penstock/tenants/usage"
)

// Config of a Meter.
type Config struct {
	Dir      string // folder of the counter files: the first of log.dirs
	Broker   int32
	Cluster  string        // the cluster's id for the records, may be empty
	Interval time.Duration // penstock.usage.interval.ms; 10 s
	// Publish appends to the usage topic and returns when the record is
	// committed. It may be called twice with the same record.
	Publish func(ctx context.Context, key, value []byte) error
	Logger  *slog.Logger
	Now     func() time.Time

	MaxPrincipals int // 4096
	MaxPartitions int // with batches in the journal at one time; 8192
	MaxJournal    int // batches in the journal; 65,536
}

func (c *Config) fill() error {
	if c.Dir == "" || c.Publish == nil {
		return errors.New("meter: Dir and Publish must be set")
	}
	def := func(v *int, d, max int) {
		if *v <= 0 {
			*v = d
		}
		*v = min(*v, max)
	}
	def(&c.MaxPrincipals, 4096, maxPrincipals-1)
	def(&c.MaxPartitions, 8192, maxPartitions)
	def(&c.MaxJournal, 65536, maxJournal)
	if c.Interval <= 0 {
		c.Interval = 10 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Meter counts. Its hooks never wait for I/O, and after Close do nothing.
type Meter struct {
	cfg Config
	log *slog.Logger

	mu        sync.Mutex
	closed    bool
	l         *layout
	epoch     int64
	names     map[string]uint32
	pending   map[protocol.TopicPartition]*pendingTP
	freeSlots []uint32
	freeTPs   []uint32
	direct    int64 // batches counted at append, for the journal was full; since the last report
	merged    int64 // batches that share an entry; since the last report

	published []values // last values that are known to be published, by counter; the loop's
	outbox    []outgoing
	cancel    context.CancelFunc
	done      chan struct{}
}

// pendingTP is a partition with entries in the journal: their slots, oldest first.
type pendingTP struct {
	idx   uint32
	slots []uint32
}

// Open closes the last boot's counters, begins a new boot and maps its file.
// Only one process may use a folder; the lock of the log folder sees to that.
func Open(cfg Config) (*Meter, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	m := &Meter{cfg: cfg, log: cfg.Logger}
	if err := m.boot(); err != nil {
		return nil, err
	}
	m.published = make([]values, m.l.np*2)
	return m, nil
}

// index builds the maps over an empty file.
func (m *Meter) index() {
	m.names = map[string]uint32{usage.Overflow: 0}
	m.pending = make(map[protocol.TopicPartition]*pendingTP)
	m.freeSlots = make([]uint32, 0, m.l.nj)
	for i := m.l.nj; i > 0; i-- {
		m.freeSlots = append(m.freeSlots, i-1)
	}
	m.freeTPs = make([]uint32, 0, m.l.nt)
	for i := m.l.nt; i > 0; i-- {
		m.freeTPs = append(m.freeTPs, i-1)
	}
}

// Epoch is the epoch of this boot.
func (m *Meter) Epoch() int64 { return m.epoch }

// Start begins to publish: the final records of earlier boots first.
func (m *Meter) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.done = cancel, make(chan struct{})
	go m.run(ctx)
}

// Close ends the counting, publishes the final record as long as ctx allows,
// and unmaps the file. If the record could not be published, the next boot does
// it; the error says so and harms nothing.
func (m *Meter) Close(ctx context.Context) error {
	if m.cancel != nil {
		m.cancel()
		<-m.done
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.mu.Unlock()
	// From here on nobody else touches the file.
	err := m.publishFinal(ctx)
	return errors.Join(err, unix.Msync(m.l.data, unix.MS_SYNC), unix.Munmap(m.l.data))
}

// Appended journals a batch of a client at [base, last] of tp, as a leader.
// Best called before the batch is written; see the package comment. An empty
// principal is the broker itself and not counted. Duplicates must not be
// reported.
func (m *Meter) Appended(principal string, tp protocol.TopicPartition, base, last int64, bytes, records int64) {
	if principal == "" || base < 0 || last < base || bytes < 0 || records < 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	if p := m.pending[tp]; p != nil {
		// What lies at or after base cannot be there any more: the partition was
		// truncated, or made anew under its old name.
		m.cut(tp, p, base)
	}
	m.journal(principal, tp, entry{base: base, last: last, values: values{bytes, records, 1}, time: m.cfg.Now().UnixMilli()})
}

// Committed says that all of tp below the high watermark hw is committed. Calls
// with a smaller hw than before do nothing.
func (m *Meter) Committed(tp protocol.TopicPartition, hw int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pending[tp]
	if p == nil || m.closed {
		return
	}
	n := 0
	for _, s := range p.slots {
		e, _ := m.l.entry(s)
		if e.last >= hw {
			break
		}
		m.l.add(counterIndex(e.principal, dirIn), e.values, int64(s))
		m.freeSlots = append(m.freeSlots, s)
		n++
	}
	if n == len(p.slots) {
		p.slots = p.slots[:0]
	} else {
		p.slots = p.slots[n:]
	}
	m.forgetIfEmpty(tp, p)
}

// Truncated says that all of tp at and above newEnd is gone. It must also be
// called with the log's end when a partition has been loaded.
func (m *Meter) Truncated(tp protocol.TopicPartition, newEnd int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pending[tp]; p != nil && !m.closed {
		m.cut(tp, p, newEnd)
		m.forgetIfEmpty(tp, p)
	}
}

// Removed says that this broker has no replica of tp any more: what is not
// known to be committed is not counted.
func (m *Meter) Removed(tp protocol.TopicPartition) { m.Truncated(tp, 0) }

// Fetched counts record bytes that were handed to a client; records may be 0.
func (m *Meter) Fetched(principal string, bytes, records int64) {
	if principal == "" || bytes < 0 || records < 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.l.add(counterIndex(m.principal(principal), dirOut), values{bytes, records, 1}, -1)
	}
}

// Usage is the sum counted in this boot for a principal and a direction.
func (m *Meter) Usage(principal string, d usage.Direction) (bytes, records, requests int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, ok := m.names[principal]
	if !ok || m.closed {
		return 0, 0, 0
	}
	dir := dirIn
	if d == usage.Out {
		dir = dirOut
	}
	v := m.l.values(counterIndex(i, dir))
	return v[0], v[1], v[2]
}

// Pending is the number of batches whose fate is open.
func (m *Meter) Pending() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int(m.l.nj) - len(m.freeSlots)
}

// journal adds an entry for the named principal and partition. With mu held.
func (m *Meter) journal(name string, tp protocol.TopicPartition, e entry) {
	e.principal = m.principal(name)
	p := m.pending[tp]
	if p != nil && len(m.freeSlots) < int(m.l.nj)/4 && m.mergeLast(p, e) {
		m.merged++
		return
	}
	if len(m.freeSlots) > 0 && p == nil {
		p = m.newTP(tp)
	}
	if len(m.freeSlots) == 0 || p == nil {
		m.direct++
		m.l.add(counterIndex(e.principal, dirIn), e.values, -1)
		return
	}
	e.partition = p.idx
	s := m.freeSlots[len(m.freeSlots)-1]
	m.freeSlots = m.freeSlots[:len(m.freeSlots)-1]
	m.l.setEntry(s, e)
	p.slots = append(p.slots, s)
}

// mergeLast adds a batch to the entry before it, if it follows directly.
func (m *Meter) mergeLast(p *pendingTP, e entry) bool {
	if len(p.slots) == 0 {
		return false
	}
	s := p.slots[len(p.slots)-1]
	have, _ := m.l.entry(s)
	if have.principal != e.principal || have.last+1 != e.base {
		return false
	}
	m.l.begin(opEntry, int64(s), 0, [4]int64{e.last, have.values[0] + e.values[0], have.values[1] + e.values[1], have.values[2] + e.values[2]})
	m.l.apply()
	return true
}

// cut drops what lies at and above end. Of an entry that begins below and ends
// above, the share of its offsets below end stays: it is several batches.
func (m *Meter) cut(tp protocol.TopicPartition, p *pendingTP, end int64) {
	n := len(p.slots)
	for n > 0 {
		s := p.slots[n-1]
		e, _ := m.l.entry(s)
		if e.last < end {
			break
		}
		if e.base < end && e.values[2] > 1 {
			kept, of := uint64(end-e.base), uint64(e.last-e.base+1)
			m.l.begin(opEntry, int64(s), 0, [4]int64{end - 1, share(e.values[0], kept, of), share(e.values[1], kept, of), max(1, share(e.values[2], kept, of))})
			m.l.apply()
			break
		}
		m.l.free(s)
		m.freeSlots = append(m.freeSlots, s)
		n--
	}
	p.slots = p.slots[:n]
}

// share is v x kept / of, without overflow.
func share(v int64, kept, of uint64) int64 {
	hi, lo := bits.Mul64(uint64(v), kept)
	q, _ := bits.Div64(hi, lo, of)
	return int64(q)
}

func (m *Meter) newTP(tp protocol.TopicPartition) *pendingTP {
	if len(m.freeTPs) == 0 || len(tp.Topic) == 0 || len(tp.Topic) > partitionSz-topicOff {
		return nil
	}
	p := &pendingTP{idx: m.freeTPs[len(m.freeTPs)-1]}
	m.freeTPs = m.freeTPs[:len(m.freeTPs)-1]
	m.l.setTP(p.idx, tp)
	m.pending[tp] = p
	return p
}

// forgetIfEmpty keeps the entry of a busy partition only while there are plenty.
func (m *Meter) forgetIfEmpty(tp protocol.TopicPartition, p *pendingTP) {
	if len(p.slots) == 0 && len(m.freeTPs) < int(m.l.nt)/2 {
		m.freeTPs = append(m.freeTPs, p.idx)
		delete(m.pending, tp)
	}
}

// principal finds or makes a principal's counters. With mu held.
func (m *Meter) principal(name string) uint32 {
	if i, ok := m.names[name]; ok {
		return i
	}
	if len(m.names) >= int(m.l.np) || !usage.ValidPrincipal(name) {
		return 0
	}
	i := uint32(len(m.names))
	m.l.setName(i, name)
	m.names[name] = i
	return i
}

func usageEntry(name string, dir int, v values) usage.Entry {
	d := usage.In
	if dir == dirOut {
		d = usage.Out
	}
	return usage.Entry{Principal: name, Direction: d, Bytes: v[0], Records: v[1], Requests: v[2]}
}

func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
}
