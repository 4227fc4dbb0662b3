//go:build compat

package brokertest

import (
	"bufio"
	"encoding/base64"
	bin "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"penstock/dataplane/recordbatch"
)

// The readers here are strict on purpose, and not those of package commitlog.

// readCheckpoint reads a checkpoint: "0", the number of entries, entries; every
// line is ended, its words stand one blank apart.
func readCheckpoint(path string, words int) ([][]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return nil, nil // a new Kafka broker's
	}
	text, ended := strings.CutSuffix(string(b), "\n")
	lines := strings.Split(text, "\n")
	if !ended || len(lines) < 2 || lines[0] != "0" || lines[1] != strconv.Itoa(len(lines)-2) {
		return nil, fmt.Errorf("%s: %.60q", path, b)
	}
	var out [][]string
	for _, l := range lines[2:] {
		w := strings.Split(l, " ")
		if len(w) != words || slices.Contains(w, "") {
			return nil, fmt.Errorf("%s: line %q", path, l)
		}
		out = append(out, w)
	}
	return out, nil
}

// readOffsets reads a checkpoint of the folder, by TOPIC-PARTITION.
func readOffsets(path string) (map[string]int64, error) {
	lines, err := readCheckpoint(path, 3)
	out := map[string]int64{}
	for _, w := range lines {
		name := w[0] + "-" + w[1]
		o, perr := strconv.ParseInt(w[2], 10, 64)
		if _, twice := out[name]; twice || perr != nil || o < 0 {
			return nil, fmt.Errorf("%s: line %q", path, w)
		}
		out[name] = o
	}
	return out, err
}

type epochStart struct {
	epoch int32
	start int64
}

func readEpochs(path string) ([]epochStart, error) {
	lines, err := readCheckpoint(path, 2)
	var out []epochStart
	for _, w := range lines {
		e, err1 := strconv.ParseInt(w[0], 10, 32)
		o, err2 := strconv.ParseInt(w[1], 10, 64)
		if n := len(out); errors.Join(err1, err2) != nil || e < 0 || o < 0 || n > 0 && (out[n-1].epoch >= int32(e) || out[n-1].start > o) {
			return nil, fmt.Errorf("%s: line %q", path, w)
		}
		out = append(out, epochStart{int32(e), o})
	}
	return out, err
}

// files are what may lie in a log's folder of a broker that does not run.
var segmentFile = regexp.MustCompile(`^(\d{20})\.(log|index|timeindex|txnindex|snapshot|batches)$`)

// producerState is a producer as of some offset, without the time that only
// counts for its expiry.
type producerState struct {
	epoch      int16
	lastSeq    int32
	lastOffset int64
	delta      int32
	coord      int32
	txnFirst   int64
}

// abort is an entry of a transaction index.
type abort struct{ id, first, last, stable int64 }

// scanned is what a log's batches say.
type scanned struct {
	end       int64
	producers map[int64]producerState
	aborts    map[string][]abort // by segment
}

// checkFiles reads every file of the folders after an orderly stop.
func (f *folder) checkFiles() {
	f.t.Helper()
	logs := 0
	for _, dir := range f.dirs {
		logs += f.checkDir(dir)
	}
	if logs < len(carryTopics) {
		f.t.Errorf("files of %s: only %d logs", f.last, logs)
	}
}

func (f *folder) checkDir(dir string) (logs int) {
	f.t.Helper()
	wrong := func(format string, a ...any) { f.t.Errorf("files of "+f.last.String()+": "+format, a...) }
	path := func(name string) string { return filepath.Join(dir, name) }

	var marker struct {
		Version     *int
		BrokerEpoch *int64
	}
	if b, err := os.ReadFile(path(".kafka_cleanshutdown")); err != nil || json.Unmarshal(b, &marker) != nil || marker.Version == nil || *marker.Version != 0 || marker.BrokerEpoch == nil {
		wrong("clean shutdown marker: %q, %v", b, err)
	}
	checkMetaProperties(path("meta.properties"), wrong)
	points := map[string]map[string]int64{}
	for _, name := range []string{"recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"} {
		var err error
		if points[name], err = readOffsets(path(name)); err != nil && !(name == "cleaner-offset-checkpoint" && errors.Is(err, os.ErrNotExist)) {
			wrong("%v", err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), "-delete") {
			continue
		}
		logs++
		l := f.byTopic[strings.TrimSuffix(e.Name(), "-0")]
		end := checkLog(path(e.Name()), l, wrong)
		for _, name := range []string{"recovery-point-offset-checkpoint", "replication-offset-checkpoint"} {
			if got, ok := points[name][e.Name()]; got != end || !ok && end > 0 {
				wrong("%s has %d (%v) for %s, which ends at %d", name, got, ok, e.Name(), end)
			}
		}
		if l != nil && l.start > 0 {
			if got := points["log-start-offset-checkpoint"][e.Name()]; got != l.start {
				wrong("log-start-offset-checkpoint has %d for %s, which starts at %d", got, e.Name(), l.start)
			}
		}
	}
	return logs
}

func checkMetaProperties(path string, wrong func(string, ...any)) {
	b, err := os.ReadFile(path)
	if err != nil {
		wrong("%v", err)
		return
	}
	props := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "#") {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if _, twice := props[k]; !ok || twice || k == "" || v == "" {
			wrong("%s: line %q", path, line)
		}
		props[k] = v
	}
	if props["version"] != "0" || props["broker.id"] != strconv.Itoa(carryID) || len(props["cluster.id"]) != 22 {
		wrong("%s: %v", path, props)
	}
}

// checkLog reads one log's folder and returns where the log ends.
func checkLog(dir string, l *carriedLog, wrong func(string, ...any)) int64 {
	name := filepath.Base(dir)
	es, err := os.ReadDir(dir)
	if err != nil {
		wrong("%v", err)
		return -1
	}
	bases := map[string][]string{}
	for _, e := range es {
		if m := segmentFile.FindStringSubmatch(e.Name()); m != nil {
			bases[m[2]] = append(bases[m[2]], m[1])
		} else if e.Name() != "leader-epoch-checkpoint" && e.Name() != "partition.metadata" && !strings.HasSuffix(e.Name(), ".deleted") {
			wrong("%s: an unknown file %s", name, e.Name())
		}
	}
	if l != nil {
		want := regexp.MustCompile(`^version: 0\ntopic_id: ` + base64.RawURLEncoding.EncodeToString(l.id[:]) + `\n?$`)
		if b, err := os.ReadFile(filepath.Join(dir, "partition.metadata")); err != nil || !want.Match(b) {
			wrong("%s: partition.metadata is %q, %v", name, b, err)
		}
	}
	if len(bases["log"]) == 0 || !slices.Equal(bases["log"], bases["index"]) || !slices.Equal(bases["log"], bases["timeindex"]) {
		wrong("%s: segments %v, indexes %v, time indexes %v", name, bases["log"], bases["index"], bases["timeindex"])
	}
	epochs, err := readEpochs(filepath.Join(dir, "leader-epoch-checkpoint"))
	if err != nil {
		wrong("%v", err)
	}
	s := scanned{producers: map[int64]producerState{}, aborts: map[string][]abort{}}
	for _, base := range bases["log"] {
		if err := s.segment(dir, base, epochs); err != nil {
			wrong("%s/%s.log: %v", name, base, err)
			return -1
		}
	}
	whole := l != nil && !l.compacted && l.start == 0 // or the batches do not tell all
	for _, base := range bases["snapshot"] {
		got, err := readSnapshot(filepath.Join(dir, base+".snapshot"))
		if err != nil {
			wrong("%v", err)
		}
		if base == fmt.Sprintf("%020d", s.end) && whole && fmt.Sprint(got) != fmt.Sprint(s.producers) {
			wrong("%s: snapshot at the end %s: %+v, the batches say %+v", name, base, got, s.producers)
		}
	}
	if end := fmt.Sprintf("%020d", s.end); s.end > 0 && !slices.Contains(bases["snapshot"], end) {
		wrong("%s: no snapshot at the end %s: %v", name, end, bases["snapshot"])
	}
	for _, base := range bases["log"] {
		got, err := readAborts(filepath.Join(dir, base+".txnindex"))
		if err != nil {
			wrong("%v", err)
		}
		if whole && !slices.Equal(got, s.aborts[base]) {
			wrong("%s: transaction index of %s: %v, the batches say %v", name, base, got, s.aborts[base])
		}
	}
	return s.end
}

// segment walks the batches of one file.
func (s *scanned) segment(dir, base string, epochs []epochStart) error {
	b, err := os.ReadFile(filepath.Join(dir, base+".log"))
	if err != nil {
		return err
	}
	first, err := strconv.ParseInt(base, 10, 64)
	if err != nil || first < s.end {
		return fmt.Errorf("begins below %d", s.end)
	}
	s.end = first
	for rest := b; len(rest) > 0; {
		batch, r, err := recordbatch.Next(rest)
		if err != nil {
			return fmt.Errorf("at %d of %d: %w", len(b)-len(rest), len(b), err)
		}
		rest = r
		if batch.CRC() != batch.ComputeCRC() || batch.BaseOffset() < s.end || batch.LastOffsetDelta() < 0 {
			return fmt.Errorf("batch %d..%d after %d", batch.BaseOffset(), batch.LastOffset(), s.end)
		}
		i := slices.IndexFunc(epochs, func(e epochStart) bool { return e.start > batch.BaseOffset() })
		if i < 0 {
			i = len(epochs)
		}
		if i > 0 && epochs[i-1].epoch != batch.LeaderEpoch() {
			return fmt.Errorf("batch at %d is of epoch %d, the checkpoint says %d", batch.BaseOffset(), batch.LeaderEpoch(), epochs[i-1].epoch)
		}
		s.end = batch.NextOffset()
		if err := s.producer(batch, base); err != nil {
			return err
		}
	}
	return nil
}

// producer follows what a batch does to its producer.
func (s *scanned) producer(b recordbatch.Batch, base string) error {
	if !b.HasProducerID() {
		return nil
	}
	id := b.ProducerID()
	p, ok := s.producers[id]
	if !ok || p.epoch != b.ProducerEpoch() {
		txnFirst, coord := int64(-1), int32(-1)
		if ok {
			txnFirst, coord = p.txnFirst, p.coord
		}
		p = producerState{epoch: b.ProducerEpoch(), lastSeq: -1, lastOffset: -1, coord: coord, txnFirst: txnFirst}
	}
	if !b.IsControl() {
		p.lastSeq, p.lastOffset, p.delta = b.LastSequence(), b.LastOffset(), b.LastOffsetDelta()
		if b.IsTransactional() && p.txnFirst < 0 {
			p.txnFirst = b.BaseOffset()
		}
		s.producers[id] = p
		return nil
	}
	return recordbatch.Records(b, func(r recordbatch.Record) error {
		first := p.txnFirst
		p.coord, p.txnFirst = int32(bin.BigEndian.Uint32(r.Value[2:])), -1
		s.producers[id] = p
		if bin.BigEndian.Uint16(r.Key[2:]) == 0 && first >= 0 {
			stable := r.Offset + 1
			for _, other := range s.producers {
				if other.txnFirst >= 0 {
					stable = min(stable, other.txnFirst)
				}
			}
			s.aborts[base] = append(s.aborts[base], abort{id, first, r.Offset, stable})
		}
		return nil
	})
}

func readSnapshot(path string) (map[int64]producerState, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	const head, each = 10, 46
	if len(b) < head || bin.BigEndian.Uint16(b) != 1 || bin.BigEndian.Uint32(b[2:]) != crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli)) ||
		len(b)-head != int(bin.BigEndian.Uint32(b[6:]))*each {
		return nil, fmt.Errorf("%s: % x", path, b[:min(len(b), 60)])
	}
	out := map[int64]producerState{}
	for e := b[head:]; len(e) > 0; e = e[each:] {
		out[int64(bin.BigEndian.Uint64(e))] = producerState{
			epoch: int16(bin.BigEndian.Uint16(e[8:])), lastSeq: int32(bin.BigEndian.Uint32(e[10:])), lastOffset: int64(bin.BigEndian.Uint64(e[14:])),
			delta: int32(bin.BigEndian.Uint32(e[22:])), coord: int32(bin.BigEndian.Uint32(e[34:])), txnFirst: int64(bin.BigEndian.Uint64(e[38:])),
		}
	}
	return out, nil
}

func readAborts(path string) ([]abort, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size()%34 != 0 {
		return nil, fmt.Errorf("%s: %d bytes", path, st.Size())
	}
	var out []abort
	r := bufio.NewReader(file)
	for range st.Size() / 34 {
		var e struct {
			Version                 int16
			ID, First, Last, Stable int64
		}
		if err := bin.Read(r, bin.BigEndian, &e); err != nil {
			return nil, err
		}
		if e.Version != 0 {
			return nil, fmt.Errorf("%s: version %d", path, e.Version)
		}
		out = append(out, abort{e.ID, e.First, e.Last, e.Stable})
	}
	return out, nil
}
