package commitlog

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"penstock/dataplane/protocol"
	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

func TestAnEmptyLogLeavesNoProducerSnapshot(t *testing.T) {
	l, fsys := newLog(t, Config{})
	must(t, l.Close())
	if got, err := l.snapshotOffsets(); err != nil || len(got) > 0 {
		t.Errorf("snapshots at %v, %v", got, err)
	}
	l = openTest(t, fsys, Config{}, OpenOptions{CleanShutdown: true})
	appendTo(t, l, plain(1, 1), 0)
	must(t, l.Close())
	if got, err := l.snapshotOffsets(); err != nil || len(got) != 1 || got[0] != 2 {
		t.Errorf("snapshots at %v, %v: want one at the end, 2", got, err)
	}
}

func TestPartitionMetadataIsAsKafkaWritesIt(t *testing.T) {
	fsys := vfs.NewMem()
	must(t, WriteTopicID(fsys, "/d/t-0", protocol.UUID{1, 2, 3}))
	b, err := vfs.ReadFile(fsys, "/d/t-0/"+partitionMetadataFile, 100)
	if want := "version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA"; err != nil || string(b) != want {
		t.Errorf("%q, %v; want %q", b, err, want)
	}
}

// Kafka's cleaner leaves an empty segment where it keeps no record.
func TestACleanStartTakesEmptySegmentsOfACompactionAsTheyAre(t *testing.T) {
	l, fsys := newLog(t, small)
	for i := range 110 {
		appendTo(t, l, plain(int64(i)), 0)
	}
	l.wg.Wait()
	var bases []int64
	for _, s := range l.segments() {
		bases = append(bases, s.base)
	}
	end := l.EndOffset()
	must(t, l.Close())
	if len(bases) < 4 {
		t.Fatalf("segments at %v", bases)
	}
	for _, base := range []int64{bases[0], bases[2]} {
		for _, suffix := range []string{logSuffix, indexSuffix, timeSuffix} {
			f, err := fsys.Open(segmentPath(dir, base, suffix), false)
			must(t, err)
			must(t, errors.Join(f.Truncate(0), f.Close()))
		}
	}
	var said bytes.Buffer
	l = openTest(t, fsys, small, OpenOptions{CleanShutdown: true, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	defer l.Close()
	if said.Len() > 0 {
		t.Errorf("the log was not taken as it is: %s", said.String())
	}
	if l.StartOffset() != 0 || l.EndOffset() != end {
		t.Errorf("the log goes from %d to %d, want 0 to %d", l.StartOffset(), l.EndOffset(), end)
	}
	got := map[int64]bool{}
	for b, err := range recordbatch.Split(readAll(t, l, 0, end, 500)) {
		must(t, err)
		got[b.BaseOffset()] = true
	}
	for o := range end {
		if gone := o < bases[1] || o >= bases[2] && o < bases[3]; got[o] == gone {
			t.Errorf("offset %d: read %v, empty %v", o, got[o], gone)
		}
	}
	if o, ts, _, found, err := l.OffsetForTimestamp(0, end); err != nil || !found || o != bases[1] || ts != bases[1] {
		t.Errorf("the first record from time 0 on is %d at %d (%v, %v), want %d", o, ts, found, err, bases[1])
	}
}
