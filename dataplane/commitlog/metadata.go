package commitlog

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"penstock/dataplane/protocol"
	"penstock/dataplane/vfs"
)

const (
	partitionMetadataFile = "partition.metadata"
	maxMetadataSize       = 1 << 20
)

// MetaProperties is the file meta.properties of a log dir (version 0, of the
// ZooKeeper mode).
type MetaProperties struct {
	ClusterID string
	BrokerID  int32             // -1 if absent
	Other     map[string]string // keys we do not know, kept
}

// Meta reads meta.properties; ok is false if there is none yet.
func (d *Dir) Meta() (m MetaProperties, ok bool, err error) {
	path := filepath.Join(d.path, metaFile)
	b, err := vfs.ReadFile(d.fs, path, maxMetadataSize)
	if errors.Is(err, fs.ErrNotExist) {
		return MetaProperties{BrokerID: -1}, false, nil
	}
	if err != nil {
		return m, false, storageErr("read", path, err)
	}
	if m, err = parseMeta(b); err != nil {
		return m, false, fmt.Errorf("%s: %w", path, err)
	}
	return m, true, nil
}

// WriteMeta writes meta.properties durably.
func (d *Dir) WriteMeta(m MetaProperties) error { return d.write(metaFile, formatMeta(m)) }

func parseMeta(b []byte) (MetaProperties, error) {
	m := MetaProperties{BrokerID: -1, Other: map[string]string{}}
	version := ""
	for line := range strings.FieldsFuncSeq(string(b), func(r rune) bool { return r == '\n' || r == '\r' }) { // as in Java, either ends a line
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return m, fmt.Errorf("%w: line %.80q", errCheckpoint, line)
		}
		key, value = strings.TrimSpace(key), unescape(strings.TrimSpace(value))
		switch key {
		case "version":
			version = value
		case "cluster.id":
			m.ClusterID = value
		case "broker.id":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil || n < 0 {
				return m, fmt.Errorf("%w: broker.id %.20q", errCheckpoint, value)
			}
			m.BrokerID = int32(n)
		default:
			m.Other[key] = value
		}
	}
	if version != "0" {
		return m, fmt.Errorf("%w: version %.20q, must be 0", errCheckpoint, version)
	}
	return m, nil
}

// unescape undoes the backslashes that Java's property files put before = : # !.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

var escaper = strings.NewReplacer(`\`, `\\`, `=`, `\=`, `:`, `\:`, `#`, `\#`, `!`, `\!`, "\n", "", "\r", "")

func formatMeta(m MetaProperties) []byte {
	lines := []string{"version=0\n"}
	add := func(k, v string) { lines = append(lines, escaper.Replace(k)+"="+escaper.Replace(v)+"\n") }
	if m.ClusterID != "" {
		add("cluster.id", m.ClusterID)
	}
	if m.BrokerID >= 0 {
		add("broker.id", strconv.Itoa(int(m.BrokerID)))
	}
	for k, v := range m.Other {
		add(k, v)
	}
	sort.Strings(lines)
	return []byte("#\n" + strings.Join(lines, ""))
}

// ReadTopicID reads partition.metadata in a partition's folder; ok is false if there is none.
func ReadTopicID(fsys vfs.FS, partitionDir string) (id protocol.UUID, ok bool, err error) {
	path := filepath.Join(partitionDir, partitionMetadataFile)
	b, err := vfs.ReadFile(fsys, path, maxMetadataSize)
	if errors.Is(err, fs.ErrNotExist) {
		return id, false, nil
	}
	if err != nil {
		return id, false, storageErr("read", path, err)
	}
	if id, err = parseTopicID(b); err != nil {
		return id, false, fmt.Errorf("%s: %w", path, err)
	}
	return id, true, nil
}

func parseTopicID(b []byte) (id protocol.UUID, err error) {
	f := strings.Fields(string(b))
	if len(f) != 4 || f[0] != "version:" || f[1] != "0" || f[2] != "topic_id:" {
		return id, fmt.Errorf("%w: partition metadata %.80q", errCheckpoint, b)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(f[3])
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("%w: topic id %.40q", errCheckpoint, f[3])
	}
	copy(id[:], raw)
	if id == (protocol.UUID{}) {
		return id, fmt.Errorf("%w: zero topic id", errCheckpoint)
	}
	return id, nil
}

// MakeFolder makes the folder of a new log with the file partition.metadata in it,
// unless id is zero. A power cut may take the folder's name until Dir.Sync, and those
// in it until the log's first flush, together: making ten thousand of them costs one
// sync each, not four.
func MakeFolder(fsys vfs.FS, partitionDir string, id protocol.UUID) error {
	if err := fsys.MkdirAll(partitionDir); err != nil {
		return storageErr("mkdir", partitionDir, err)
	}
	if id == (protocol.UUID{}) {
		return nil
	}
	path := filepath.Join(partitionDir, partitionMetadataFile)
	return storageErr("write", path, vfs.ReplaceFile(fsys, path, formatTopicID(id)))
}

// foldersAtOnce is how many files are synced side by side: a file system with a journal
// writes it once for all that ask at one time.
const foldersAtOnce = 32

// MakeFolders is MakeFolder for many: the disk is asked to sync their files all at the same
// time. ids and the errors are parallel to the folders.
func MakeFolders(fsys vfs.FS, partitionDirs []string, ids []protocol.UUID) []error {
	errs := make([]error, len(partitionDirs))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(foldersAtOnce, len(partitionDirs)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(errs); i = int(next.Add(1)) - 1 {
				errs[i] = MakeFolder(fsys, partitionDirs[i], ids[i])
			}
		})
	}
	wg.Wait()
	return errs
}

// WriteTopicID writes partition.metadata durably, making the folder if missing; it
// must precede any data.
func WriteTopicID(fsys vfs.FS, partitionDir string, id protocol.UUID) error {
	if err := vfs.MkdirAllDurable(fsys, partitionDir); err != nil {
		return storageErr("mkdir", partitionDir, err)
	}
	path := filepath.Join(partitionDir, partitionMetadataFile)
	return storageErr("write", path, vfs.WriteFileAtomic(fsys, path, formatTopicID(id)))
}

func formatTopicID(id protocol.UUID) []byte {
	return []byte("version: 0\ntopic_id: " + base64.RawURLEncoding.EncodeToString(id[:]))
}
