//go:build compat

package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fate is what became of the transaction that a record was written in.
type fate int

const (
	wasCommitted fate = iota // or written outside of any
	wasAborted
	stillOpen
)

// wanted is one record that must be in a log.
type wanted struct {
	rec      kgo.Record
	fate     fate
	appended bool // its time is that of its arrival
}

// carriedLog is what the one partition of a topic must hold.
type carriedLog struct {
	topic     string
	configs   map[string]*string
	compacted bool
	forgets   bool // tombstones may be gone
	id        kadm.TopicID
	start     int64
	recs      map[int64]*wanted
	// Of records in flight at a kill nobody knows: they are there once and in this
	// order, or not. They become part of recs at the first reading.
	maybe []*kgo.Record
	ends  map[int32]int64 // of finished leader epochs, as told by the first who was asked
}

func (l *carriedLog) add(r *kgo.Record, as fate) *wanted {
	w := &wanted{rec: *r, fate: as}
	l.recs[r.Offset] = w
	return w
}

// settle gives all records of a transaction their fate.
func settle(ws []*wanted, as fate) {
	for _, w := range ws {
		w.fate = as
	}
}

func (w *wanted) is(got *kgo.Record) error {
	if appended := got.Attrs.TimestampType() == 1; appended != w.appended {
		return fmt.Errorf("timestamp of type %d", got.Attrs.TimestampType())
	}
	return sameRecord(got, &w.rec)
}

func sameRecord(got, want *kgo.Record) error {
	switch {
	case !sameBytes(got.Key, want.Key):
		return fmt.Errorf("key %.40q, want %.40q", got.Key, want.Key)
	case !sameBytes(got.Value, want.Value):
		return fmt.Errorf("value %.40q, want %.40q", got.Value, want.Value)
	case !slices.EqualFunc(got.Headers, want.Headers, func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && sameBytes(a.Value, b.Value) }):
		return fmt.Errorf("headers %v, want %v", got.Headers, want.Headers)
	case got.Timestamp.UnixMilli() != want.Timestamp.UnixMilli():
		return fmt.Errorf("timestamp %d, want %d", got.Timestamp.UnixMilli(), want.Timestamp.UnixMilli())
	}
	return nil
}

// sameBytes tells a null from an empty field.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// reading is what a consumer gets of every partition.
type reading map[string]map[int32][]*kgo.Record

// readAll reads every partition to its end, markers included.
func (f *folder) readAll(level kgo.IsolationLevel, topics ...string) reading {
	f.t.Helper()
	out := reading{}
	parts := map[string]map[int32]kgo.Offset{}
	left := map[string]map[int32]int64{}
	f.within(func(ctx context.Context, adm *kadm.Client) error {
		starts, err := adm.ListStartOffsets(ctx, topics...)
		if err == nil {
			err = starts.Error()
		}
		if err != nil {
			return err
		}
		list := adm.ListEndOffsets
		if level == kgo.ReadCommitted() {
			list = adm.ListCommittedOffsets
		}
		ends, err := list(ctx, topics...)
		if err == nil {
			err = ends.Error()
		}
		if err != nil {
			return err
		}
		ends.Each(func(e kadm.ListedOffset) {
			if out[e.Topic] == nil {
				out[e.Topic], parts[e.Topic], left[e.Topic] = map[int32][]*kgo.Record{}, map[int32]kgo.Offset{}, map[int32]int64{}
			}
			out[e.Topic][e.Partition] = nil
			if s, _ := starts.Lookup(e.Topic, e.Partition); s.Offset < e.Offset {
				parts[e.Topic][e.Partition] = kgo.NewOffset().At(s.Offset)
				left[e.Topic][e.Partition] = e.Offset
			}
		})
		return nil
	})
	n := 0
	for t := range left {
		if n += len(left[t]); len(left[t]) == 0 {
			delete(parts, t)
		}
	}
	if n == 0 {
		return out
	}
	cl := f.client(kgo.ConsumePartitions(parts), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(), kgo.FetchMaxWait(200*time.Millisecond))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for n > 0 && ctx.Err() == nil {
		fs := cl.PollFetches(ctx)
		fs.EachError(func(topic string, p int32, err error) {
			if ctx.Err() == nil {
				f.t.Fatalf("%s: reading %s-%d: %v", f.who, topic, p, err)
			}
		})
		fs.EachRecord(func(r *kgo.Record) {
			end, wanted := left[r.Topic][r.Partition]
			if !wanted || r.Offset >= end {
				return
			}
			out[r.Topic][r.Partition] = append(out[r.Topic][r.Partition], r)
			if r.Offset == end-1 {
				delete(left[r.Topic], r.Partition)
				n--
			}
		})
	}
	for t, ps := range left {
		for p, end := range ps {
			rs := out[t][p]
			at := int64(-1)
			if len(rs) > 0 {
				at = rs[len(rs)-1].Offset
			}
			f.t.Fatalf("%s: %s-%d is read (%v) to offset %d of %d only", f.who, t, p, level, at, end)
		}
	}
	return out
}

// verify holds all that a stock client reads in both isolation levels against
// what they must hold.
func (f *folder) verify(when string) {
	f.t.Helper()
	topics := slices.Sorted(maps.Keys(f.byTopic))
	topics = slices.DeleteFunc(topics, func(t string) bool { return t == "txflood" }) // see verifyTransactionsInFlight
	for _, level := range []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()} {
		got := f.readAll(level, topics...)
		for _, topic := range topics {
			l := f.byTopic[topic]
			if level == kgo.ReadUncommitted() {
				f.learn(l, got[topic][0])
			}
			bad := l.compare(got[topic][0], level == kgo.ReadCommitted())
			for _, b := range bad[:min(len(bad), 5)] {
				f.t.Errorf("%s, %s, %v: %s: %s", f.who, when, level, topic, b)
			}
		}
	}
	if f.t.Failed() {
		f.t.FailNow()
	}
}

// learn takes records over that were in flight at a kill: any number, but each at most
// once, in order.
func (f *folder) learn(l *carriedLog, got []*kgo.Record) {
	f.t.Helper()
	if len(l.maybe) == 0 {
		return
	}
	n := 0
	for _, r := range got {
		if l.recs[r.Offset] != nil || r.Attrs.IsControl() {
			continue
		}
		i := slices.IndexFunc(l.maybe, func(m *kgo.Record) bool { return bytes.Equal(m.Value, r.Value) })
		if i < 0 {
			f.t.Errorf("%s: offset %d of %s holds %.40q, which was not in flight, or was there before", f.who, r.Offset, l.topic, r.Value)
			continue
		}
		m := l.maybe[i]
		m.Offset = r.Offset
		l.add(m, wasCommitted)
		l.maybe = l.maybe[i+1:]
		n++
	}
	f.t.Logf("%s: %d of the records in flight are in %s", f.who, n, l.topic)
	l.maybe = nil
}

// compare tells where a reading to the end differs from what it must be.
func (l *carriedLog) compare(got []*kgo.Record, onlyCommitted bool) (bad []string) {
	complain := func(format string, a ...any) { bad = append(bad, fmt.Sprintf(format, a...)) }
	limit := int64(1) << 62 // the first offset of an open transaction
	next := l.start
	last := map[string]int64{}
	for o, w := range l.recs {
		if w.fate == stillOpen {
			limit = min(limit, o)
		}
		next = max(next, o+1)
		if o >= l.start {
			last[string(w.rec.Key)] = max(last[string(w.rec.Key)], o)
		}
	}
	seen := map[int64]bool{}
	prev := l.start - 1
	for _, r := range got {
		if r.Offset <= prev {
			complain("offset %d comes after %d", r.Offset, prev)
		}
		prev = r.Offset
		seen[r.Offset] = true
		w := l.recs[r.Offset]
		switch {
		case onlyCommitted && r.Offset >= limit:
			complain("offset %d lies in or behind an open transaction (from %d)", r.Offset, limit)
		case r.Attrs.IsControl():
			if w != nil {
				complain("offset %d is a marker, want %.40q", r.Offset, w.rec.Value)
			}
		case w == nil:
			complain("offset %d holds %.40q, which nobody wrote", r.Offset, r.Value)
		case onlyCommitted && w.fate != wasCommitted:
			complain("offset %d: a record of an aborted transaction", r.Offset)
		default:
			if err := w.is(r); err != nil {
				complain("offset %d: %v", r.Offset, err)
			}
		}
	}
	if !onlyCommitted && prev+1 < next {
		complain("it ends at %d, want %d", prev+1, next)
	}
	for _, o := range slices.Sorted(maps.Keys(l.recs)) {
		w := l.recs[o]
		switch {
		case o < l.start, seen[o], onlyCommitted && (o >= limit || w.fate != wasCommitted):
		case l.compacted && last[string(w.rec.Key)] != o, l.forgets && w.rec.Value == nil:
		default:
			complain("offset %d (%.40q) is missing", o, w.rec.Value)
		}
	}
	if !l.compacted && !onlyCommitted { // all that is not a record of ours is a marker
		if want := prev + 1 - l.start; int64(len(got)) != want {
			complain("%d records and markers from %d to %d", len(got), l.start, prev)
		}
	}
	return bad
}
