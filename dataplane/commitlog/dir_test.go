package commitlog

import (
	"fmt"
	"maps"
	"path/filepath"
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
	if !d.CleanShutdown() || !vfs.Exists(vfs.OS, path+"/"+cleanShutdownFile) {
		t.Error("clean shutdown marker not seen, or taken before a log is opened")
	}
	must(t, d.Claim())
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
	if d.CleanShutdown() {
		t.Error("an unclean end counts as clean")
	}
	must(t, d.Claim())
	d.GiveBack() // it had none
	must(t, d.Close(false))
	d, err = OpenDir(vfs.OS, path)
	must(t, err)
	if d.CleanShutdown() {
		t.Error("a folder that was not clean is so after a start that was called off")
	}
	must(t, d.Close(true))
	for range 2 {
		d, err = OpenDir(vfs.OS, path)
		must(t, err)
		must(t, d.Claim())
		d.GiveBack()
		must(t, d.Close(false))
	}
	d, err = OpenDir(vfs.OS, path)
	must(t, err)
	defer d.Close(false)
	if !d.CleanShutdown() {
		t.Error("a folder was clean, and is not after starts that were called off")
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

func TestNamesOfFoldersWithASuffix(t *testing.T) {
	d := &Dir{path: "/logs"}
	for _, n := range []int{1, 200, 213, 249} {
		p := tp(strings.Repeat("x", n), 7)
		for _, suffix := range []string{deleteDirSuffix, strayDirSuffix} {
			name := cappedName(p, suffix)
			if !strings.Contains(name, "-7.") || !strings.HasSuffix(name, suffix) || len(name) != min(n+len("-7.")+32+len(suffix), 255) {
				t.Errorf("topic of %d: %s", n, name)
			}
		}
		path, err := d.NewFuturePath(p)
		if fits := n+len("-7.")+32+len(futureDirSuffix) <= 255; fits != (err == nil) {
			t.Errorf("topic of %d: %q, %v", n, path, err)
		} else if got, ok := parseFutureDir(filepath.Base(path)); fits && (!ok || got != p) {
			t.Errorf("%s is read as %v", path, got)
		}
	}
	for _, bad := range []string{"", "-future", "a-0-future", "a-0.-future", "a-x.1-future", "a-01.1-future", "a-0.1-delete", ".1-future"} {
		if got, ok := parseFutureDir(bad); ok {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

// What is read from a name makes the same name again.
func FuzzFolderNames(f *testing.F) {
	for _, s := range []string{"a-0", "a-b-12", "a-0.0123-future", "a.b-1.x-future", "-1", "a-0-future"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if p, ok := parsePartitionDir(name); ok && p.String() != name {
			t.Errorf("%q is read as %v", name, p)
		}
		if p, ok := parseFutureDir(name); ok && (!strings.HasPrefix(name, p.String()+".") || !strings.HasSuffix(name, futureDirSuffix)) {
			t.Errorf("%q is read as %v", name, p)
		}
	})
}
