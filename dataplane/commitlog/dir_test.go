package commitlog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/dataplane/protocol"
	"penstock/dataplane/vfs"
)

func tp(topic string, p int32) protocol.TopicPartition {
	return protocol.TopicPartition{Topic: topic, Partition: p}
}

func TestDirKeepsItsFilesAcrossLives(t *testing.T) {
	path := t.TempDir() + "/logs"
	d, err := OpenDir(vfs.OS, path)
	must(t, err)
	if d.CleanShutdown() {
		t.Error("a new folder counts as cleanly shut down")
	}
	if _, err := OpenDir(vfs.OS, path); err == nil {
		t.Fatal("two owners of one folder")
	}
	if _, ok, err := d.Meta(); ok || err != nil {
		t.Errorf("meta of a new folder: %v, %v", ok, err)
	}
	meta := MetaProperties{ClusterID: "a=b:c", BrokerID: 3, Other: map[string]string{"directory.id": "x y"}}
	must(t, d.WriteMeta(meta))
	want := map[protocol.TopicPartition]int64{tp("a", 0): 5, tp("a-b.c_", 12): 1 << 40}
	must(t, d.WriteCheckpoint(HighWatermarkCheckpoint, want))
	must(t, d.Close(true))

	d, err = OpenDir(vfs.OS, path)
	must(t, err)
	if !d.CleanShutdown() || vfs.Exists(vfs.OS, path+"/"+cleanShutdownFile) {
		t.Error("clean shutdown marker not taken")
	}
	got, err := d.ReadCheckpoint(HighWatermarkCheckpoint)
	if must(t, err); !maps.Equal(got, want) {
		t.Errorf("checkpoint %v", got)
	}
	if got, err := d.ReadCheckpoint(LogStartCheckpoint); err != nil || len(got) != 0 {
		t.Errorf("missing checkpoint: %v, %v", got, err)
	}
	if m, ok, err := d.Meta(); !ok || err != nil || fmt.Sprint(m) != fmt.Sprint(meta) {
		t.Errorf("meta %+v, %v", m, err)
	}
	must(t, d.Close(false))
	d, err = OpenDir(vfs.OS, path)
	must(t, err)
	defer d.Close(false)
	if d.CleanShutdown() {
		t.Error("an unclean end counts as clean")
	}
}

func TestDeletedPartitionsGoAfterTheDelay(t *testing.T) {
	d, err := OpenDir(vfs.OS, t.TempDir())
	must(t, err)
	defer d.Close(false)
	long := strings.Repeat("x", 249)
	for _, p := range []protocol.TopicPartition{tp("a", 0), tp("a", 1), tp(long, 7)} {
		must(t, WriteTopicID(vfs.OS, d.PartitionPath(p), [16]byte{9}))
	}
	must(t, vfs.OS.MkdirAll(d.Path()+"/b-0.0123-future"))
	must(t, vfs.OS.MkdirAll(d.Path()+"/c-0.0123-delete")) // of an earlier life
	must(t, vfs.OS.MkdirAll(d.Path()+"/lost+found"))
	must(t, d.MarkDeleted(tp("a", 1)))
	must(t, d.MarkDeleted(tp(long, 7)))
	must(t, d.MarkDeleted(tp("never", 7)))
	l, err := d.List()
	if must(t, err); !slices.Equal(l.Current, []Folder{{tp("a", 0), d.PartitionPath(tp("a", 0))}}) {
		t.Errorf("partitions %v", l.Current)
	}
	id, ok, err := ReadTopicID(vfs.OS, d.PartitionPath(tp("a", 0)))
	if id != [16]byte{9} || !ok || err != nil {
		t.Errorf("topic id %v, %v, %v", id, ok, err)
	}
	if left, err := d.SweepDeleted(time.Now(), time.Minute); left != 2 || err != nil {
		t.Errorf("%d left, %v", left, err)
	}
	if left, err := d.SweepDeleted(time.Now().Add(time.Hour), time.Minute); left != 0 || err != nil {
		t.Errorf("%d left, %v", left, err)
	}
	es, _ := vfs.OS.ReadDir(d.Path())
	for _, e := range es {
		if strings.HasSuffix(e.Name, deleteDirSuffix) {
			t.Errorf("%s is still there", e.Name)
		}
	}
}

func TestMetaOfKafkaIsRead(t *testing.T) {
	m, err := parseMeta([]byte("#\n#Sun Nov 29 19:00:00 UTC 2026\ncluster.id=Ab_-\\=\nversion=0\nbroker.id=12\n"))
	if err != nil || m.ClusterID != "Ab_-=" || m.BrokerID != 12 {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, bad := range []string{"", "version=1\nnode.id=1", "version=0\nbroker.id=x", "version=0\nbroker.id=-4", "version=0\nnonsense"} {
		if _, err := parseMeta([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestDamagedCheckpointsAreRefused(t *testing.T) {
	if m, err := parseOffsets(nil); err != nil || len(m) != 0 {
		t.Errorf("the empty file of a new Kafka broker: %v, %v", m, err)
	}
	for _, bad := range []string{"\n", "1\n0\n", "0\n1\n", "0\n-1\n", "0\n1\na 0 5", "0\n1\na 0\n", "0\n0\na 0 5\n", "0\n1\na -1 5\n", "0\n1\na 0 x\n", "0\n4000000000\n"} {
		if m, err := parseOffsets([]byte(bad)); err == nil {
			t.Errorf("%q was taken: %v", bad, m)
		}
	}
	for _, bad := range []string{"0\n2\n1 0\n1 5\n", "0\n2\n1 5\n2 4\n", "0\n1\n-1 4\n"} {
		if m, err := parseEpochs([]byte(bad)); err == nil {
			t.Errorf("%q was taken: %v", bad, m)
		}
	}
}
