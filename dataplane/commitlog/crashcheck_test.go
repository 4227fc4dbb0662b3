package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// crash takes what the power cut left (or cuts it now), opens it, perhaps with
// further cuts meanwhile, and checks it.
func (s *survivor) crash() {
	_ = s.l.abandon()
	s.bg = nil
	disk := s.disk.Disk()
	if disk == nil {
		s.adds, s.floor, s.empties, s.mayStart = nil, s.safe, false, s.m.start
		disk = s.disk.Crash(s.r)
	}
	o := OpenOptions{RecoveryPoint: s.recovery, LogStartOffset: s.start}
	for range s.r.Intn(3) {
		disk.CutAt(1+s.r.Intn(40), s.r)
		s.fs = s.wrap(disk)
		l, err := s.open(o)
		if err == nil {
			_ = l.abandon()
		} else if !errors.Is(err, vfs.ErrPowerCut) {
			s.t.Fatalf("opening after the crash: %v", err)
		}
		if cut := disk.Disk(); cut != nil {
			disk = cut
		} else {
			disk = disk.Crash(s.r)
		}
	}
	s.disk = disk
	s.fs = s.wrap(disk)
	s.reopen(o)
	s.check(false)

	// To open once more, after kill -9 this time, changes nothing.
	first, files := s.state(), s.files()
	must(s.t, s.l.abandon())
	s.reopen(o)
	if again := s.state(); again != first {
		s.t.Fatalf("opened once more the log is\n%s, and was\n%s", again, first)
	}
	for name, b := range s.files() {
		if !bytes.Equal(files[name], b) {
			s.t.Fatalf("opened once more, %s has other bytes (%d, before %d)", name, len(b), len(files[name]))
		}
		delete(files, name)
	}
	if len(files) > 0 {
		s.t.Fatalf("opened once more, these are gone: %v", slices.Collect(maps.Keys(files)))
	}
}

// check holds the opened log against what was done to it: what was flushed is there,
// what is there is a first part of what was appended, the start is not below what was
// checkpointed, and indexes, epochs and producers agree with the batches. The model
// is then what is there.
func (s *survivor) check(clean bool) {
	t, l := s.t, s.l
	start, end := l.StartOffset(), l.EndOffset()
	t.Logf("opened: %d..%d of %d..%d, %d was flushed, checkpoints %d and %d", start, end, s.m.start, s.m.end, s.floor, s.recovery, s.start)
	if start > end {
		t.Fatalf("log is %d..%d", start, end)
	}
	if !clean {
		s.m.add(s.adds...)
		s.adds = nil
	}
	emptied := l.segments()[0].base == end && (s.empties || start == s.start)
	if end > s.m.end && !emptied || s.m.has(end, s.floor) && !s.empties {
		t.Fatalf("log ends at %d; %d was flushed, %d appended", end, s.floor, s.m.end)
	}
	if s.m.truncate(end); s.m.end != end {
		if !emptied {
			t.Fatalf("log ends inside a batch at %d", end)
		}
		s.m = model{start: start, end: end, sent: map[int64]recordbatch.Batch{}} // all that was left lay below the start
	}
	if start < s.start && !s.empties || start > max(s.mayStart, s.start) {
		t.Fatalf("log starts at %d; it started at %d, %d was checkpointed, up to %d was asked for", start, s.m.start, s.start, s.mayStart)
	}
	s.m.start = start
	s.safe = min(max(s.safe, s.floor), end)
	s.recovery, s.start = min(s.recovery, end), start
	if !clean {
		// Recovery says how far it trusts the disk.
		s.safe = min(s.safe, l.RecoveryPoint())
	}

	if s.cleaning {
		s.adopt()
	}
	s.firstDirty, s.cleaned = min(s.firstDirty, end), min(s.cleaned, end)
	got := readAll(t, l, start, end, 1+s.r.Intn(900))
	if want := s.m.bytes(start, end); !bytes.Equal(got, want) {
		t.Fatalf("the log holds %s, and should hold %s", spans(got), spans(want))
	}
	checkIndexFiles(t, l)
	for range 5 {
		ts, upTo := s.now.UnixMilli()-s.r.Int63n(60_000), start+s.r.Int63n(end-start+1)
		o, at, _, found, err := l.OffsetForTimestamp(ts, upTo)
		must(t, err)
		if wo, wat := s.m.firstAtOrAfter(ts, upTo); wo != o || wat != at || found != (wo >= 0) {
			t.Fatalf("time %d below %d: offset %d at %d, a scan finds %d at %d", ts, upTo, o, at, wo, wat)
		}
		if from := start + s.r.Int63n(end-start+1); from < end {
			wantBytes(t, readAll(t, l, from, end, 1+s.r.Intn(900)), s.m.bytes(from, end))
		}
	}
	s.checkEpochs()
	s.checkProducers()
	s.checkAborted()
}

// checkIndexFiles walks all segments: every entry of an index points to the beginning
// of a batch and says of it, or of all before it, what is so.
func checkIndexFiles(t tb, l *Log) {
	t.Helper()
	for _, s := range l.segments() { // a flush after a roll may be at work beside this
		s.mu.RLock()
		defer s.mu.RUnlock()
	}
	next := int64(-1)
	for _, s := range l.segments() {
		if s.base < next {
			t.Fatalf("segment %d begins below %d", s.base, next)
		}
		last := map[int64]int64{}    // position -> last offset
		largest := map[int64]int64{} // last offset -> largest timestamp up to it
		most := int64(-1)
		sc := newScanner(s.file, s.size)
		for pos := int64(0); pos < s.size; {
			h, n, err := sc.header(pos)
			must(t, err)
			if h.Count() > 0 {
				most = max(most, h.MaxTimestamp())
			}
			last[pos], largest[h.LastOffset()] = h.LastOffset(), most
			next = h.NextOffset()
			pos += n
		}
		sc.close()
		if most != s.maxTs {
			t.Fatalf("segment %d: largest timestamp is %d, not %d", s.base, most, s.maxTs)
		}
		before := int64(-1)
		for i := range s.offsets.count() {
			e, err := s.offsets.at(i)
			must(t, err)
			o, pos := s.base+entryOffset(e), entryPos(e)
			if got, ok := last[pos]; !ok || got != o || o <= before {
				t.Fatalf("segment %d, index entry %d: offset %d at %d, the batch there ends at %d (%v), the entry before is %d", s.base, i, o, pos, got, ok, before)
			}
			before = o
		}
		before = -1
		for i := range s.times.count() {
			e, err := s.times.at(i)
			must(t, err)
			o, ts := s.base+entryTimeOffset(e), entryTime(e)
			if got, ok := largest[o]; !ok || got != ts || ts <= before {
				t.Fatalf("segment %d, time index entry %d: %d up to offset %d, the batches say %d (%v)", s.base, i, ts, o, got, ok)
			}
			before = ts
		}
	}
}

func (s *survivor) checkEpochs() {
	s.t.Helper()
	for _, b := range s.m.batches {
		if b.LastOffset() < s.m.start {
			continue
		}
		if e, ok := s.l.EpochAt(max(b.BaseOffset(), s.m.start)); !ok || e != b.LeaderEpoch() {
			s.t.Fatalf("batch %d has epoch %d, the history says %d: %v", b.BaseOffset(), b.LeaderEpoch(), e, s.l.epochs.entries)
		}
		s.epoch = max(s.epoch, b.LeaderEpoch())
	}
	last := epochEntry{-1, -1}
	for _, e := range s.l.epochs.entries {
		if e.epoch <= last.epoch || e.start < last.start || e.start > s.m.end {
			s.t.Fatalf("epochs %v in a log that ends at %d", s.l.epochs.entries, s.m.end)
		}
		last = e
	}
	s.epoch = max(s.epoch, last.epoch)
}

// checkProducers holds the state against a replay of the batches that are there. Of
// producers whose batches are all deleted it may know more.
func (s *survivor) checkProducers() {
	s.t.Helper()
	var there []recordbatch.Batch
	for _, b := range s.m.batches {
		if b.LastOffset() >= s.m.start {
			there = append(there, b)
		}
	}
	replay, _ := (&txnModel{batches: there}).replay()
	for id, want := range replay {
		got, last := s.l.producers.byID[id], s.m.lastOf(id)
		if got == nil && want.lastSeq < 0 {
			continue // only a marker of it is left
		}
		if got == nil {
			s.t.Fatalf("producer %d is forgotten", id)
		}
		if want.lastSeq >= 0 && got.lastSeq() != want.lastSeq && !s.cfg.Compact || got.epoch != want.epoch || got.txnFirst != want.open && (want.open < 0 || got.txnFirst < 0 || got.txnFirst >= s.m.start && !s.cfg.Compact || got.txnFirst > want.open) {
			s.t.Fatalf("producer %d is %+v, by the batches %+v", id, got, want)
		}
		if want.lastSeq < 0 || last.Count() == 0 || got.lastSeq() != last.LastSequence() {
			continue // a marker, or all that a clean has left of it
		}
		sent := []recordbatch.Batch{last}
		if !s.cfg.Compact {
			sent = slices.DeleteFunc(slices.Clone(there), func(b recordbatch.Batch) bool { return b.ProducerID() != id || b.IsControl() })
		}
		for _, b := range sent[max(0, len(sent)-rememberedBatches):] {
			info, err := s.l.AppendLeader(bytes.Clone(b), s.epoch)
			if must(s.t, err); !info.Duplicate || info.LastOffset != b.LastOffset() || info.MaxTimestamp != b.MaxTimestamp() && !s.cfg.Compact {
				s.t.Fatalf("retry of the batch of producer %d at %d gave %+v", id, b.BaseOffset(), info)
			}
		}
	}
	for id, got := range s.l.producers.byID {
		if last := s.m.lastOf(id); !s.cfg.Compact && replay[id] == nil && got.n > 0 && got.batches[got.n-1].lastOffset >= s.m.start && (last == nil || last.LastOffset() < s.m.start) {
			s.t.Fatalf("producer %d has a batch that ends at %d, which is not in the log %d..%d", id, got.batches[got.n-1].lastOffset, s.m.start, s.m.end)
		}
	}
}

// spans lists batches by their offsets.
func spans(raw []byte) string {
	var b bytes.Buffer
	for x, err := range recordbatch.Split(raw) {
		if err != nil {
			return b.String() + err.Error()
		}
		fmt.Fprintf(&b, "%d-%d(%d) ", x.BaseOffset(), x.LastOffset(), x.Count())
	}
	return b.String()
}

// state is all that can be asked of a log, as text.
func (s *survivor) state() string {
	var b bytes.Buffer
	fmt.Fprintln(&b, s.l.StartOffset(), s.l.EndOffset(), s.l.epochs.entries)
	for _, g := range s.l.segments() {
		fmt.Fprintln(&b, "segment", g.base, g.size, g.next, g.maxTs, g.maxTsLast, g.offsets.count(), g.times.count())
	}
	for _, id := range slices.Sorted(maps.Keys(s.l.producers.byID)) {
		p := s.l.producers.byID[id]
		fmt.Fprintln(&b, "producer", id, p.epoch, p.batches[:p.n], p.coordinatorEpoch, p.txnFirst)
	}
	return b.String()
}

func (s *survivor) files() map[string][]byte {
	out := map[string][]byte{}
	es, err := s.disk.ReadDir(dir)
	must(s.t, err)
	for _, e := range es {
		if x := filepath.Ext(e.Name); x == deletedSuffix || x == ".tmp" { // on their way out
			continue
		}
		p := filepath.Join(dir, e.Name)
		b, err := vfs.ReadFile(s.disk, p, 1<<30)
		must(s.t, err)
		if filepath.Ext(p) == batchesSuffix && len(b) > batchesHeader { // the first scan may have come before the epochs were read from the batches
			b = append(b[6:10:10], b[14:]...)
		}
		out[e.Name] = b
	}
	return out
}

func (m *model) add(bs ...recordbatch.Batch) {
	for _, b := range bs {
		m.batches = append(m.batches, b)
		m.end = b.NextOffset()
	}
}

// closeGap: where a log was cut inside a gap between batches is not on disk; opened
// again it ends with its last batch.
func (m *model) closeGap(l *Log) {
	onDisk := l.segments()[0].base
	for _, b := range m.batches {
		onDisk = max(onDisk, b.NextOffset())
	}
	m.end = max(min(m.end, onDisk), m.start) // if all that is left lies below the start, the log begins anew there
	// An empty segment gave way to one that begins with its first batch.
	if base := l.segments()[0].base; !m.has(m.start, base) {
		m.start = max(m.start, base)
	}
}

// has tells whether a batch begins in [from, upTo).
func (m *model) has(from, upTo int64) bool {
	return slices.ContainsFunc(m.batches, func(b recordbatch.Batch) bool { return b.BaseOffset() >= from && b.BaseOffset() < upTo })
}

// lastOf is the newest data batch of a producer, nil if there is none.
func (m *model) lastOf(id int64) recordbatch.Batch {
	var last recordbatch.Batch
	for _, b := range m.batches {
		if b.ProducerID() == id && !b.IsControl() {
			last = b
		}
	}
	if b := m.sent[id]; b != nil && b.LastOffset() < m.end && (last == nil || last.LastOffset() < b.LastOffset()) {
		return b
	}
	return last
}
