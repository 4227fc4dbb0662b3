package commitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"

	"penstock/dataplane/recordbatch"
)

// keyedBatch has records of few keys, some of them tombstones, for a log that is compacted.
func keyedBatch(r *rand.Rand, o recordbatch.BuildOptions, ts []int64) recordbatch.Batch {
	recs := make([]recordbatch.Record, len(ts))
	for i := range ts {
		recs[i] = recordbatch.Record{Timestamp: ts[i], Key: fmt.Appendf(nil, "key %d", r.Intn(6)), Value: fmt.Appendf(nil, "value %d", r.Intn(1000))}
		if r.Intn(5) == 0 {
			recs[i].Value = nil
		}
	}
	b, err := recordbatch.Build(o, recs)
	if err != nil {
		panic(err)
	}
	return b
}

// markerAt ends a transaction at the time, in ms.
func markerAt(id int64, abort bool, now int64) recordbatch.Batch {
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.Transactional, o.Control = id, 0, true, true
	key := []byte{0, 0, 0, 1}
	if abort {
		key[3] = 0
	}
	b, err := recordbatch.Build(o, []recordbatch.Record{{Timestamp: now, Key: key, Value: make([]byte, 6)}})
	if err != nil {
		panic(err)
	}
	return b
}

// transaction appends data of a transactional producer, or the end of its transaction.
func (s *survivor) transaction() recordbatch.Batch {
	id := int64(11 + s.r.Intn(2))
	ps, _ := (&txnModel{batches: s.m.batches}).replay()
	if p := ps[id]; p != nil && p.open >= s.m.start && s.r.Intn(2) == 0 {
		return markerAt(id, s.r.Intn(2) == 0, s.now.UnixMilli())
	}
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = id, 0, s.nextSequence(id), true
	return keyedBatch(s.r, o, s.times())
}

// nextSequence is what a producer goes on with. Where batches may be missing, only the
// log knows which was its last.
func (s *survivor) nextSequence(id int64) int32 {
	p := s.l.producers.byID[id]
	if p != nil && (s.cfg.Compact || p.n == 0) {
		return recordbatch.AddSequence(p.lastSeq(), 1)
	}
	if last := s.m.lastOf(id); last != nil {
		return recordbatch.AddSequence(last.LastSequence(), 1)
	}
	return 0
}

// clean compacts what may be compacted: below the first open transaction.
func (s *survivor) clean() error {
	if !s.cfg.Compact || s.m.start == s.m.end {
		return nil
	}
	upTo := s.m.end
	ps, ended := (&txnModel{batches: s.m.batches}).replay()
	s.ended = ended // that is decided, even if the power cut takes a marker back
	for _, p := range ps {
		if p.open >= 0 {
			upTo = min(upTo, p.open)
		}
	}
	m, err := NewOffsetMap(int64(4+s.r.Intn(20))*SlotSize, 1)
	must(s.t, err)
	s.t.Logf("clean from %d up to %d", s.firstDirty, upTo)
	s.cleaning = true
	st, err := s.l.Clean(context.Background(), CleanOptions{FirstDirty: max(s.firstDirty, s.m.start), UpTo: upTo, Now: s.now, Map: m})
	if errors.Is(err, ErrCleanAborted) {
		err = nil
	}
	if err != nil {
		return err
	}
	s.adopt()
	if s.firstDirty = st.End; s.r.Intn(2) == 0 {
		s.cleaned = st.End // the checkpoint
	}
	return nil
}

// adopt takes the batches as a clean has left them into the model: no record that was
// not there, and of each key the newest value as before.
func (s *survivor) adopt() {
	s.t.Helper()
	s.cleaning = false
	left := onDisk(s.t, s.l) // also what lies below the start, which may go back
	was, before := s.records(s.m.batches)
	is, after := s.records(left)
	for o, r := range is {
		if was[o] != r {
			s.t.Fatalf("after a clean offset %d holds %s, before %s", o, r, was[o])
		}
	}
	if !maps.Equal(before, after) {
		s.t.Fatalf("after a clean the newest values are %v, before %v", after, before)
	}
	for _, b := range s.m.batches {
		if b.HasProducerID() && !b.IsControl() {
			s.m.sent[b.ProducerID()] = b
		}
	}
	s.m.batches = left
}

// onDisk is every batch in the files of a log.
func onDisk(t tb, l *Log) (all []recordbatch.Batch) {
	t.Helper()
	for _, g := range l.segments() {
		raw := make([]byte, g.size)
		if len(raw) > 0 {
			_, err := g.file.ReadAt(raw, 0)
			must(t, err)
		}
		for b, err := range recordbatch.Split(raw) {
			must(t, err)
			all = append(all, b)
		}
	}
	return all
}

// records are those from the start on by offset, and the newest value of each key that
// was not aborted.
func (s *survivor) records(batches []recordbatch.Batch) (all map[int64]string, newest map[string]string) {
	all, newest = map[int64]string{}, map[string]string{}
	for _, b := range batches {
		if b.LastOffset() < s.m.start || b.IsControl() {
			continue
		}
		aborted := false
		for _, t := range s.ended {
			aborted = aborted || t.abort && b.IsTransactional() && t.producerID == b.ProducerID() && t.first <= b.BaseOffset() && b.BaseOffset() < t.last
		}
		must(s.t, recordbatch.Records(b, func(r recordbatch.Record) error {
			if r.Offset < s.m.start {
				return nil
			}
			all[r.Offset] = fmt.Sprintf("%s=%q", r.Key, r.Value)
			switch {
			case aborted:
			case r.Value == nil:
				delete(newest, string(r.Key))
			default:
				newest[string(r.Key)] = string(r.Value)
			}
			return nil
		}))
	}
	return all, newest
}

// checkAborted: what the transaction index tells of the batches that are there. Of
// transactions whose data a clean has removed it may tell more.
func (s *survivor) checkAborted() {
	s.t.Helper()
	got, err := s.l.AbortedTransactions(s.m.start, s.m.end)
	must(s.t, err)
	told := map[AbortedTransaction]bool{}
	for _, a := range got {
		told[a] = true
	}
	for _, a := range (&txnModel{batches: s.m.batches}).aborted(s.m.start, s.m.end) {
		// A clean may have removed its first batches, after which it seems to begin later.
		known := slices.ContainsFunc(got, func(x AbortedTransaction) bool {
			return x == a || s.cfg.Compact && x.ProducerID == a.ProducerID && x.FirstOffset < a.FirstOffset
		})
		if a.FirstOffset >= s.m.start && !known {
			s.t.Fatalf("aborted transaction %+v is not told: %v", a, got)
		}
		delete(told, a)
	}
	var there []recordbatch.Batch // without the beginning of a transaction, it seems to begin later
	for _, b := range s.m.batches {
		if b.LastOffset() >= s.m.start {
			there = append(there, b)
		}
	}
	for _, a := range (&txnModel{batches: there}).aborted(s.m.start, s.m.end) {
		delete(told, a)
	}
	for a := range told {
		if a.FirstOffset >= s.m.start && !s.cfg.Compact {
			s.t.Fatalf("transaction %+v is told as aborted, which it was not", a)
		}
	}
}
