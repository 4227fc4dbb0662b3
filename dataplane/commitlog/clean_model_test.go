package commitlog

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"penstock/dataplane/recordbatch"
)

// modelTxn is one transaction of the model.
type modelTxn struct {
	pid    int64
	marker int64 // its offset, math.MaxInt64 while the transaction is open
	abort  bool
}

// producerStep is what one batch or marker makes of a producer.
type producerStep struct {
	offset int64
	pid    int64
	epoch  int16
	seq    int32 // the next one
}

// cleanModel is what was ever written to a compacted log and not truncated.
type cleanModel struct {
	records   map[int64]kv        // by offset
	txns      map[int64]*modelTxn // of records, by offset
	open      map[int64]*modelTxn // by producer
	steps     []producerStep
	bases     []int64             // of batches
	horizon   map[int64]time.Time // of tombstones: when the first clean that met it lets it go
	end       int64
	now       time.Time
	appended  int
	truncated bool
}

func newCleanModel() *cleanModel {
	return &cleanModel{records: map[int64]kv{}, txns: map[int64]*modelTxn{}, open: map[int64]*modelTxn{}, horizon: map[int64]time.Time{}, now: at(0)}
}

const (
	stateCommitted = "committed"
	stateOpen      = "open"
	stateAborted   = "aborted"
)

// state is that of a record in a log that ends at end.
func (m *cleanModel) state(offset, end int64) string {
	switch x := m.txns[offset]; {
	case x == nil:
		return stateCommitted
	case x.marker >= end:
		return stateOpen
	case x.abort:
		return stateAborted
	}
	return stateCommitted
}

// producer is the epoch and the next sequence of a producer.
func (m *cleanModel) producer(pid int64) (epoch int16, seq int32) {
	for _, s := range slices.Backward(m.steps) {
		if s.pid == pid {
			return s.epoch, s.seq
		}
	}
	return 0, 0
}

// took notes a batch of data; x is its transaction, if it has one.
func (m *cleanModel) took(t tb, b recordbatch.Batch, info AppendInfo, x *modelTxn) {
	t.Helper()
	must(t, recordbatch.Records(b, func(r recordbatch.Record) error {
		rec := kv{offset: r.Offset, key: string(r.Key), value: string(r.Value), ts: r.Timestamp}
		if r.Value == nil {
			rec.value = "-"
		}
		m.records[r.Offset] = rec
		if x != nil {
			m.txns[r.Offset] = x
		}
		return nil
	}))
	if b.HasProducerID() {
		m.steps = append(m.steps, producerStep{info.FirstOffset, b.ProducerID(), b.ProducerEpoch(), recordbatch.AddSequence(b.LastSequence(), 1)})
	}
	m.bases = append(m.bases, info.FirstOffset)
	m.end = info.LastOffset + 1
}

// ended notes the marker of an open transaction.
func (m *cleanModel) ended(pid int64, epoch int16, abort bool, offset int64) {
	before, seq := m.producer(pid)
	if epoch != before {
		seq = 0
	}
	m.steps = append(m.steps, producerStep{offset, pid, epoch, seq})
	m.open[pid].marker, m.open[pid].abort = offset, abort
	delete(m.open, pid)
	m.bases = append(m.bases, offset)
	m.end = offset + 1
}

// cut forgets all from end on; transactions of which the marker goes are open again.
func (m *cleanModel) cut(end int64) {
	gone := func(o int64) bool { return o >= end }
	maps.DeleteFunc(m.records, func(o int64, _ kv) bool { return gone(o) })
	maps.DeleteFunc(m.txns, func(o int64, _ *modelTxn) bool { return gone(o) })
	maps.DeleteFunc(m.horizon, func(o int64, _ time.Time) bool { return gone(o) })
	m.steps = slices.DeleteFunc(m.steps, func(s producerStep) bool { return gone(s.offset) })
	m.bases = slices.DeleteFunc(m.bases, gone)
	clear(m.open)
	for _, x := range m.txns {
		if x.marker >= end {
			x.marker, x.abort = math.MaxInt64, false
			m.open[x.pid] = x
		}
	}
	m.truncated = m.truncated || end < m.end
	m.end = end
}

// newest is the newest committed record of each key, tombstones too.
func (m *cleanModel) newest() map[string]kv {
	out := map[string]kv{}
	for o, r := range m.records {
		if m.state(o, m.end) == stateCommitted && r.key != "" && (out[r.key].key == "" || o > out[r.key].offset) {
			out[r.key] = r
		}
	}
	return out
}

// met notes the tombstones that a clean of a log has met.
func (m *cleanModel) met(cleaned, end int64) {
	for o, r := range m.records {
		if _, ok := m.horizon[o]; !ok && r.value == "-" && o < cleaned && m.state(o, end) == stateCommitted {
			m.horizon[o] = m.now.Add(compacted.DeleteRetention)
		}
	}
}

// check holds a log against the model: the leader's, or a follower's, which may lag.
func (m *cleanModel) check(t tb, l *Log, leader bool) {
	t.Helper()
	end := l.EndOffset()
	if leader && end != m.end {
		t.Fatalf("log ends at %d, want %d", end, m.end)
	}
	have := map[int64]kv{}
	var want []kv
	for _, r := range all(t, l) {
		if m.records[r.offset] != r {
			t.Fatalf("log has %v at %d, written was %v", r, r.ts, m.records[r.offset])
		}
		have[r.offset] = r
		if m.state(r.offset, end) != stateAborted {
			want = append(want, r)
		}
	}
	seen := committed(t, l)
	if !slices.Equal(seen, want) {
		t.Fatalf("readers of committed data get %v, want %v", seen, want)
	}
	if end == m.end {
		m.checkNewest(t, have, seen)
	}
	for o, r := range m.records {
		if _, ok := have[o]; !ok && o < end && m.state(o, m.end) == stateOpen {
			t.Fatalf("record %v of an open transaction is gone", r)
		}
	}
	m.checkTxns(t, l)
	if leader && !m.truncated { // a truncation may take what the last batch of a producer has made superfluous
		for _, s := range m.steps {
			if _, seq := m.producer(s.pid); seq > 0 && l.lastSequence(s.pid) != seq-1 {
				t.Fatalf("last sequence of producer %d is %d, want %d", s.pid, l.lastSequence(s.pid), seq-1)
			}
		}
	}
}

// checkLookups asks for the first record of each time, and the latest one, from every
// offset on: what a search that starts there finds is what the records say.
func (m *cleanModel) checkLookups(t tb, l *Log) {
	t.Helper()
	var recs []kv // those of markers too
	for b, err := range recordbatch.Split(readAll(t, l, l.StartOffset(), l.EndOffset(), 1)) {
		must(t, err)
		must(t, recordbatch.Records(b, func(r recordbatch.Record) error {
			recs = append(recs, kv{offset: r.Offset, ts: r.Timestamp})
			return nil
		}))
	}
	for start := l.StartOffset(); start <= l.EndOffset(); start++ {
		for _, at := range recs {
			for _, ts := range []int64{at.ts, at.ts + 1} {
				want := hit{}
				for _, r := range recs {
					if r.offset >= start && r.ts >= ts {
						want = hit{offset: r.offset, timestamp: r.ts, ok: true}
						break
					}
				}
				if got, err := l.firstAtOrAfter(ts, start); got != want || err != nil {
					t.Fatalf("first at or after %d from offset %d is %+v, %v; want %+v of %v", ts, start, got, err, want, recs)
				}
			}
		}
		want := hit{timestamp: -1}
		for _, r := range recs {
			if r.offset >= start && r.ts > want.timestamp {
				want = hit{offset: r.offset, timestamp: r.ts, ok: true}
			}
		}
		if got, err := l.latestFrom(start); got != want && (got.ok || want.ok) || err != nil {
			t.Fatalf("the latest from offset %d is %+v, %v; want %+v of %v", start, got, err, want, recs)
		}
	}
}

// checkReads reads from every offset to every other: the batches that lie there, whole,
// and no further.
func (m *cleanModel) checkReads(t tb, l *Log, most int) {
	t.Helper()
	type part struct{ first, last int64 }
	var parts []part
	for b, err := range recordbatch.Split(readAll(t, l, l.StartOffset(), l.EndOffset(), 1<<20)) {
		must(t, err)
		parts = append(parts, part{b.BaseOffset(), b.LastOffset()})
	}
	for from := l.StartOffset(); from <= l.EndOffset(); from++ {
		next := slices.IndexFunc(parts, func(p part) bool { return p.last >= from })
		for upTo := from; upTo <= l.EndOffset(); upTo++ {
			s, err := l.Read(from, most, upTo, true)
			must(t, err)
			p := make([]byte, s.Len)
			_, err = s.ReadInto(p)
			must(t, err)
			n := 0
			for b, err := range recordbatch.Split(p) {
				must(t, err)
				if want := parts[next+n]; b.BaseOffset() != want.first || b.LastOffset() != want.last || b.LastOffset() >= upTo {
					t.Fatalf("read of %d to %d has batch %d..%d, want %+v", from, upTo, b.BaseOffset(), b.LastOffset(), want)
				}
				n++
			}
			if s.Len > most && n > 1 || n == 0 && next >= 0 && parts[next].last < upTo {
				t.Fatalf("read of %d to %d has %d batches, %d bytes, of %+v", from, upTo, n, s.Len, parts)
			}
			if n > 0 && (s.LastOffset < parts[next+n-1].last || next+n < len(parts) && s.LastOffset >= parts[next+n].first) {
				t.Fatalf("read of %d to %d says that it goes to %d, of %+v", from, upTo, s.LastOffset, parts)
			}
			s.Close()
		}
	}
}

// checkNewest: the newest record of a key stays, but for a tombstone whose time is over.
func (m *cleanModel) checkNewest(t tb, have map[int64]kv, seen []kv) {
	t.Helper()
	values := map[string]kv{}
	for _, r := range seen {
		if m.state(r.offset, m.end) == stateCommitted {
			values[r.key] = r
		}
	}
	for k, r := range m.newest() {
		if _, ok := have[r.offset]; ok {
			continue
		}
		h, met := m.horizon[r.offset]
		if r.value != "-" || !met || m.now.Before(h) {
			t.Fatalf("newest record %v is gone at %v; horizon %v, %v", r, m.now, h, met)
		}
		if old, ok := values[k]; ok {
			t.Fatalf("tombstone %v is gone, and %v is back", r, old)
		}
	}
}

// checkTxns: all entries of the transaction indexes have their markers, and the last
// stable offset is that of the oldest open transaction of which something is there.
func (m *cleanModel) checkTxns(t tb, l *Log) {
	t.Helper()
	found, err := l.collectAborted(l.segments()[0].base, math.MaxInt64)
	must(t, err)
	at := markers(t, l)
	for _, x := range found {
		if !slices.Contains(at, x.last) {
			t.Fatalf("index entry %+v has no marker; markers are at %v", x, at)
		}
	}
	unstable := int64(math.MaxInt64)
	for b, err := range recordbatch.Split(readAll(t, l, l.StartOffset(), l.EndOffset(), 1<<20)) {
		must(t, err)
		if b.IsTransactional() && !b.IsControl() && m.state(b.BaseOffset(), l.EndOffset()) == stateOpen {
			unstable = min(unstable, b.BaseOffset())
		}
	}
	if got := l.FirstUnstableOffset(); got != unstable {
		t.Fatalf("unstable from %d, want %d", got, unstable)
	}
}

// lastSequence is the last sequence number of a producer.
func (l *Log) lastSequence(pid int64) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.producers.byID[pid]; p != nil {
		return p.lastSeq()
	}
	return recordbatch.NoSequence
}

// producerOptions are those of a batch that goes on from what the log knows.
func (m *cleanModel) producerOptions(l *Log, pid int64, transactional bool) recordbatch.BuildOptions {
	o := recordbatch.NoProducer()
	o.ProducerID, o.Transactional = pid, transactional
	o.ProducerEpoch, o.BaseSequence = m.producer(pid)
	if !m.truncated {
		return o
	}
	o.BaseSequence = recordbatch.AddSequence(l.lastSequence(pid), 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.producers.byID[pid]; p != nil && p.epoch != o.ProducerEpoch {
		o.BaseSequence = 0
	}
	return o
}

// word is one record, of a kind: a tombstone, one without a key, or a value.
func (m *cleanModel) word(key, kind int) string {
	m.appended++
	w := fmt.Sprintf("%c=%d", 'a'+key, m.appended)
	switch kind {
	case 0, 1:
		return w[:2] + "-"
	case 2:
		return w[1:]
	}
	return w
}
