//go:build compat

package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"penstock/dataplane/recordbatch"
)

// TestCarriedFilesAreTheSame gives Apache Kafka 3.9 and ours the same
// batches and compares what they leave behind, byte by byte. What may differ is
// listed in docs/formats.md.
func TestCarriedFilesAreTheSame(t *testing.T) {
	folders := map[make_]*folder{}
	for _, who := range []make_{kafka, penstock} {
		f := newFolder(t, 1)
		folders[who] = f
		seqs := map[int64]int32{}
		f.start(who)
		f.makeFed()
		f.feed(1, seqs)
		f.stop()
		f.start(who)
		f.feed(2, seqs)
		f.stop()
	}
	theirs, ours := folders[kafka].dirs[0], folders[penstock].dirs[0]
	names := func(dir string) (out []string) {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, rel)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a, b := names(theirs), names(ours)
	for _, n := range a {
		// Kafka keeps the snapshot of the stop before, within a segment; ours removes it.
		old := strings.HasSuffix(n, ".snapshot") && !slices.Contains(a, strings.TrimSuffix(n, "snapshot")+"log")
		if !slices.Contains(b, n) && n != "cleaner-offset-checkpoint" && !old {
			t.Errorf("only Kafka has %s", n)
		}
	}
	for _, n := range b {
		if !slices.Contains(a, n) && n != ".lock" && !strings.HasSuffix(n, ".batches") {
			t.Errorf("only ours has %s", n)
		}
	}
	for _, n := range a {
		if !slices.Contains(b, n) {
			continue
		}
		if err := sameFile(filepath.Join(theirs, n), filepath.Join(ours, n)); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
}

var fedTopics = []string{"small", "packed", "idle", "sparse"}

func (f *folder) makeFed() {
	f.t.Helper()
	f.within(func(ctx context.Context, adm *kadm.Client) error {
		for _, topic := range fedTopics {
			size, interval := "16384", "512"
			if topic == "sparse" {
				size, interval = "1000000", "4096"
			}
			cfg := map[string]*string{"segment.bytes": &size, "index.interval.bytes": &interval, "retention.ms": new("-1")}
			if _, err := adm.CreateTopic(ctx, 1, 1, cfg, topic); err != nil {
				return err
			}
		}
		return nil
	})
}

// feed writes batches that depend on nothing but this code; seqs are the next
// sequence numbers of each producer.
func (f *folder) feed(round uint64, seqs map[int64]int32) {
	f.t.Helper()
	rng := rand.New(rand.NewPCG(round, 2))
	cl := f.client()
	defer cl.Close()
	for i := range 400 {
		topic := fedTopics[i%2]
		if i%5 == 4 {
			topic = "sparse"
		}
		o := recordbatch.NoProducer()
		if topic == "packed" {
			o.Codec = recordbatch.Codec(i / 2 % 5)
		}
		var rs []recordbatch.Record
		for range 1 + rng.IntN(12) {
			// Times go up and down; some are the same.
			rs = append(rs, recordbatch.Record{Timestamp: carryTime - rng.Int64N(1000)*100, Key: fmt.Appendf(nil, "%d", rng.IntN(100)), Value: bytes.Repeat([]byte("x"), rng.IntN(200))})
		}
		if i%3 > 0 {
			o.ProducerID, o.ProducerEpoch = 5000+int64(i%3*10+i%2), 1
			if topic == "sparse" {
				o.ProducerID += 100
			}
			o.BaseSequence = seqs[o.ProducerID]
			seqs[o.ProducerID] += int32(len(rs))
		}
		b, err := recordbatch.Build(o, rs)
		if err != nil {
			f.t.Fatal(err)
		}
		wantCode(f.t, fmt.Sprintf("%s: batch %d to %s", f.who, i, topic), f.raw(cl, topic, b).ErrorCode, nil)
	}
}

// sameFile compares a file of Kafka's with ours.
func sameFile(theirs, ours string) error {
	st, err := os.Stat(theirs)
	if err != nil || st.IsDir() {
		return err
	}
	a, err := os.ReadFile(theirs)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(ours)
	if err != nil {
		return err
	}
	switch name := filepath.Base(theirs); {
	case strings.HasSuffix(name, ".snapshot"):
		x, err := readSnapshot(theirs)
		if err != nil {
			return err
		}
		y, err := readSnapshot(ours)
		if err != nil {
			return err
		}
		if fmt.Sprint(x) != fmt.Sprint(y) {
			return fmt.Errorf("%v, ours %v", x, y)
		}
		return nil
	case name == "log-start-offset-checkpoint": // ours names every log, Kafka those that start within a segment
		return nil
	case name == "meta.properties": // the order of the lines, a date, the cluster
		if x, y := propertyNames(a), propertyNames(b); !slices.Equal(x, y) {
			return fmt.Errorf("%v, ours %v", x, y)
		}
		return nil
	case name == "partition.metadata":
		a, b = topicID.ReplaceAll(a, []byte("ID")), topicID.ReplaceAll(b, []byte("ID"))
	case strings.HasSuffix(name, "-offset-checkpoint"): // the order of the lines
		x, y := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
		slices.Sort(x)
		slices.Sort(y)
		if !slices.Equal(x, y) {
			return fmt.Errorf("%q, ours %q", a, b)
		}
		return nil
	}
	if !bytes.Equal(a, b) {
		i := 0
		for i < min(len(a), len(b)) && a[i] == b[i] {
			i++
		}
		return fmt.Errorf("%d bytes, ours %d, which differ from %d on: %.120q, ours %.120q", len(a), len(b), i, a[max(0, i-20):min(len(a), i+100)], b[max(0, i-20):min(len(b), i+100)])
	}
	return nil
}

var topicID = regexp.MustCompile(`[A-Za-z0-9_-]{22}$`)

func propertyNames(b []byte) (names []string) {
	for line := range strings.Lines(string(b)) {
		if name, _, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// rebuild takes all that can be derived from the segments out of Kafka's folder,
// lets ours build it anew, and compares.
func (f *folder) rebuild() {
	f.t.Helper()
	was := f.t.TempDir()
	if err := os.CopyFS(was, os.DirFS(f.data)); err != nil {
		f.t.Fatal(err)
	}
	derived := []string{".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"}
	for _, path := range append(f.glob("*-0/*"), f.glob("*")...) {
		name := filepath.Base(path)
		if name == ".kafka_cleanshutdown" || name == "recovery-point-offset-checkpoint" || slices.ContainsFunc(derived, func(s string) bool { return strings.HasSuffix(name, s) }) {
			if err := os.Remove(path); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	f.start(penstock)
	f.verify("rebuilt")
	f.stop()
	files := 0
	err := filepath.WalkDir(was, func(path string, _ os.DirEntry, err error) error {
		rel, _ := filepath.Rel(was, path)
		l := f.byTopic[strings.TrimSuffix(filepath.Base(filepath.Dir(path)), "-0")]
		if err != nil || l == nil || l.compacted || l.start > 0 || !slices.ContainsFunc(derived, func(s string) bool { return strings.HasSuffix(path, s) }) {
			return err
		}
		ours := filepath.Join(f.data, rel)
		if _, err := os.Stat(ours); errors.Is(err, os.ErrNotExist) && strings.HasSuffix(path, ".snapshot") {
			return nil // of what lies before the last segment ours keeps what it needs
		}
		if err := sameFile(path, ours); err != nil {
			f.t.Errorf("rebuilt: %s: %v", rel, err)
		}
		files++
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if f.t.Logf("%d files are rebuilt as Kafka had made them", files); files < 50 {
		f.t.Errorf("only %d files were rebuilt", files)
	}
}
