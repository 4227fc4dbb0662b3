package commitlog

import (
	"bytes"
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// txnModel is a log with transactions as one would write it without files: all
// batches ever appended and not cut off, also those that retention deleted.
type txnModel struct {
	batches        []recordbatch.Batch
	start, end, hw int64
	// doubt is the end at the last restart: a transaction that ended below it, but not
	// below the high watermark of that time, may or may not count as decided.
	doubt int64
}

// state is what the batches say of one producer.
type txnProducer struct {
	epoch   int16
	lastSeq int32
	open    int64 // first offset, -1
}

type endedTxn struct {
	txn
	abort bool
}

func (m *txnModel) replay() (map[int64]*txnProducer, []endedTxn) {
	ps := map[int64]*txnProducer{}
	var ended []endedTxn
	for _, b := range m.batches {
		if !b.HasProducerID() {
			continue
		}
		p := ps[b.ProducerID()]
		if p == nil {
			p = &txnProducer{epoch: b.ProducerEpoch(), lastSeq: -1, open: -1}
			ps[b.ProducerID()] = p
		}
		if b.ProducerEpoch() != p.epoch {
			p.epoch, p.lastSeq = b.ProducerEpoch(), -1
		}
		switch {
		case b.IsControl():
			if p.open >= 0 {
				mk, _, _ := parseMarker(b)
				ended = append(ended, endedTxn{txn{b.ProducerID(), p.open, b.BaseOffset()}, mk.abort})
				p.open = -1
			}
		default:
			p.lastSeq = b.LastSequence()
			if b.IsTransactional() && p.open < 0 {
				p.open = b.BaseOffset()
			}
		}
	}
	return ps, ended
}

// stable is the last stable offset: at least least, and least unless a restart has
// left doubts.
func (m *txnModel) stable() (least, most int64) {
	least = int64(noOffset)
	ps, ended := m.replay()
	for _, p := range ps {
		if p.open >= 0 {
			least = min(least, p.open)
		}
	}
	most = least
	for _, t := range ended {
		if t.last >= m.hw {
			least = min(least, t.first)
			if t.last >= m.doubt {
				most = min(most, t.first)
			}
		}
	}
	return min(m.hw, max(least, m.start)), min(m.hw, max(most, m.start))
}

// aborted is what a reader of [from, upTo) has to be told.
func (m *txnModel) aborted(from, upTo int64) (out []AbortedTransaction) {
	_, ended := m.replay()
	for _, t := range ended {
		if t.abort && t.last >= from && t.first < upTo {
			out = append(out, AbortedTransaction{t.producerID, t.first})
		}
	}
	return out
}

// committed lists the offsets of the batches in [from, upTo) that are no transaction's
// or a committed one's.
func (m *txnModel) committed(from, upTo int64) (offsets []int64) {
	_, ended := m.replay()
	for _, b := range m.batches {
		if b.LastOffset() < from || b.LastOffset() >= upTo || b.IsControl() {
			continue
		}
		dropped := b.IsTransactional() && slices.ContainsFunc(ended, func(t endedTxn) bool {
			return t.abort && t.producerID == b.ProducerID() && t.first <= b.BaseOffset() && b.BaseOffset() < t.last
		})
		if !dropped {
			offsets = append(offsets, b.BaseOffset())
		}
	}
	return offsets
}

// readCommitted reads as a consumer does: in pieces, each with its own list.
func readCommitted(t tb, l *Log, from, upTo int64, max int) (offsets []int64) {
	t.Helper()
	for from < upTo {
		s, aborted, err := l.ReadCommitted(from, max, upTo, true)
		must(t, err)
		if s.Len == 0 {
			break
		}
		p := make([]byte, s.Len)
		_, err = s.ReadInto(p)
		must(t, err)
		s.Close()
		slices.SortFunc(aborted, func(a, b AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
		dropping := map[int64]bool{}
		for b, err := range recordbatch.Split(p) {
			must(t, err)
			for len(aborted) > 0 && aborted[0].FirstOffset <= b.LastOffset() {
				dropping[aborted[0].ProducerID] = true
				aborted = aborted[1:]
			}
			from = b.NextOffset()
			if b.IsControl() {
				if mk, ok, _ := parseMarker(b); ok && mk.abort {
					delete(dropping, b.ProducerID())
				}
			} else if !b.IsTransactional() || !dropping[b.ProducerID()] {
				offsets = append(offsets, b.BaseOffset())
			}
		}
	}
	return offsets
}

func TestTransactionsBehaveLikeAModel(t *testing.T) {
	clock := time.Now()
	now := func() time.Time { return clock }
	rapid.Check(t, func(t *rapid.T) {
		fsys, copyFS := vfs.NewMem(), vfs.NewMem()
		cfg := manySegments
		cfg.SegmentBytes = int32(rapid.IntRange(150, 1500).Draw(t, "segment bytes"))
		l := openTest(t, fsys, cfg, OpenOptions{CleanShutdown: true, Now: now})
		defer func() { _ = l.abandon() }()
		follower := openTest(t, copyFS, cfg, OpenOptions{CleanShutdown: true, Now: now})
		defer func() { _ = follower.abandon() }()
		m := &txnModel{}
		took := func(b recordbatch.Batch) {
			info := appendTo(t, l, b, 0)
			if info.FirstOffset != m.end || info.Duplicate {
				t.Fatalf("appended at %d (duplicate %v), want %d", info.FirstOffset, info.Duplicate, m.end)
			}
			m.batches = append(m.batches, bytes.Clone(b))
			m.end = info.LastOffset + 1
		}
		pid := func(t *rapid.T) (int64, *txnProducer) {
			id := rapid.Int64Range(1, 4).Draw(t, "producer")
			ps, _ := m.replay()
			if p := ps[id]; p != nil {
				return id, p
			}
			return id, &txnProducer{lastSeq: -1, open: -1}
		}
		data := func(transactional bool) func(*rapid.T) {
			return func(t *rapid.T) {
				id, p := pid(t)
				if p.open >= 0 && !transactional {
					t.Skip("not inside a transaction")
				}
				n := rapid.IntRange(1, 3).Draw(t, "records")
				if transactional {
					took(txnBatch(id, p.epoch, p.lastSeq+1, n))
				} else {
					took(idempotent(id, p.epoch, p.lastSeq+1, n))
				}
			}
		}
		end := func(t *rapid.T) {
			id, p := pid(t)
			epoch := p.epoch
			if rapid.IntRange(0, 4).Draw(t, "fences") == 0 {
				epoch++
			}
			took(txnMarker(id, epoch, rapid.Bool().Draw(t, "abort"), 0))
		}
		t.Repeat(map[string]func(*rapid.T){
			"plain":          func(t *rapid.T) { took(plain(1)) },
			"idempotent":     data(false),
			"transactional":  data(true),
			"transactional ": data(true), // more often than others
			"marker":         end,
			"marker ":        end,
			"commit up to": func(t *rapid.T) {
				m.hw = rapid.Int64Range(m.hw, m.end).Draw(t, "high watermark")
				l.SetHighWatermark(m.hw)
			},
			"commit all": func(t *rapid.T) {
				m.hw = m.end
				l.SetHighWatermark(m.hw)
			},
			"roll": func(t *rapid.T) { must(t, rollNow(l)) },
			"truncate": func(t *rapid.T) {
				lowest := m.hw
				if rapid.IntRange(0, 4).Draw(t, "unclean") == 0 {
					lowest = m.start
				}
				to := rapid.Int64Range(lowest, m.end).Draw(t, "to")
				if to < l.segments()[0].base {
					t.Skip()
				}
				for _, x := range []*Log{l, follower} {
					_, err := x.TruncateTo(to)
					must(t, err)
				}
				for i, b := range m.batches {
					if b.LastOffset() >= to {
						m.end, m.batches = min(to, b.BaseOffset()), m.batches[:i]
						break
					}
				}
				m.start, m.hw, m.doubt = min(m.start, m.end), min(m.hw, m.end), min(m.doubt, m.end)
				l.SetHighWatermark(m.hw)
			},
			"raise start": func(t *rapid.T) {
				if l.EndOffset() == 0 {
					t.Skip()
				}
				m.start = rapid.Int64Range(m.start, m.hw).Draw(t, "start")
				_, err := l.IncrementStartOffset(m.start)
				must(t, err)
				_, err = l.DeleteOldSegments(clock, m.hw)
				must(t, err)
				m.start = l.StartOffset()
			},
			"flush": func(t *rapid.T) { must(t, l.Flush()) },
			"restart": func(t *rapid.T) {
				o := OpenOptions{CleanShutdown: rapid.Bool().Draw(t, "clean"), RecoveryPoint: l.RecoveryPoint(), LogStartOffset: m.start, Now: now}
				if o.CleanShutdown {
					must(t, l.Close())
				} else {
					must(t, l.abandon())
				}
				l = openTest(t, fsys, cfg, o)
				m.doubt = m.end
				l.SetHighWatermark(m.hw)
			},
			"": func(t *rapid.T) {
				least, most := m.stable()
				lso := min(m.hw, max(l.FirstUnstableOffset(), m.start))
				if l.EndOffset() != m.end || l.StartOffset() != m.start || lso < least || lso > most {
					t.Fatalf("log is %d..%d, stable up to %d; want %d..%d, stable up to %d..%d", l.StartOffset(), l.EndOffset(), lso, m.start, m.end, least, most)
				}
				if m.hw >= m.doubt && least != most {
					t.Fatalf("BUG in the model: %d..%d", least, most)
				}
				from := rapid.Int64Range(m.start, lso).Draw(t, "from")
				upTo := rapid.Int64Range(from, lso).Draw(t, "up to")
				if from < upTo {
					got, err := l.AbortedTransactions(from, upTo)
					must(t, err)
					if want := m.aborted(from, upTo); !slices.Equal(got, want) {
						t.Fatalf("aborted in [%d, %d): %v, want %v", from, upTo, got, want)
					}
				}
				max := rapid.IntRange(1, 600).Draw(t, "max")
				if got, want := readCommitted(t, l, from, lso, max), m.committed(from, lso); !slices.Equal(got, want) {
					t.Fatalf("a reader of committed data from %d sees batches %v, want %v", from, got, want)
				}
				catchUp(t, l, follower)
			},
		})
	})
}

// catchUp brings a follower to its leader's end, and holds its state against the
// leader's: the one was made by appends and many restarts, the other by copying.
func catchUp(t *rapid.T, l, follower *Log) {
	if follower.EndOffset() < l.StartOffset() {
		must(t, follower.TruncateFullyAndStartAt(l.StartOffset()))
		return // what it does not have it need not know
	}
	if n := follower.EndOffset(); n < l.EndOffset() {
		_, err := follower.AppendFollower(readAll(t, l, n, l.EndOffset(), 1<<20))
		must(t, err)
	}
	if follower.StartOffset() > 0 {
		return
	}
	if got, want := follower.producers.encode(), l.producers.encode(); !bytes.Equal(got, want) {
		t.Fatalf("the follower's producer state is\n%x, the leader's\n%x", got, want)
	}
	var mine []abortedTxn
	for _, a := range indexed(t, follower) {
		if a.last >= l.segments()[0].base {
			mine = append(mine, a)
		}
	}
	if theirs := indexed(t, l); !slices.Equal(mine, theirs) {
		t.Fatalf("the follower's index has %v, the leader's %v", mine, theirs)
	}
}
