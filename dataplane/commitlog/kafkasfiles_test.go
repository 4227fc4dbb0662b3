package commitlog

import (
	"testing"

	"penstock/dataplane/protocol"
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
