package commitlog

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/protocol"
)

// What a folder's name may end in, after topic-partition.ID.
const (
	deleteDirSuffix = "-delete" // waits to be removed
	futureDirSuffix = "-future" // a copy that is to take a replica's place
	strayDirSuffix  = "-stray"  // put aside; nobody uses or removes it
	maxNameLength   = 255
)

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// parsePartitionDir reads topic-partition. Folders with a suffix do not match, as
// that is not a number.
func parsePartitionDir(name string) (tp protocol.TopicPartition, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 1 || !topicName.MatchString(name[:i]) {
		return tp, false
	}
	p, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || p < 0 || strconv.FormatInt(p, 10) != name[i+1:] {
		return tp, false
	}
	return protocol.TopicPartition{Topic: name[:i], Partition: int32(p)}, true
}

// parseFutureDir reads topic-partition.ID-future.
func parseFutureDir(name string) (tp protocol.TopicPartition, ok bool) {
	name, ok = strings.CutSuffix(name, futureDirSuffix)
	i := strings.LastIndexByte(name, '.')
	if !ok || i < 0 || i == len(name)-1 {
		return tp, false
	}
	return parsePartitionDir(name[:i])
}

func uniqueID() string { return strings.ReplaceAll(uuid.NewString(), "-", "") }

// cappedName is topic-partition.ID with the suffix; the topic is cut where the name
// would become too long for a file system.
func cappedName(tp protocol.TopicPartition, suffix string) string {
	suffix = fmt.Sprintf("-%d.%s%s", tp.Partition, uniqueID(), suffix)
	return tp.Topic[:min(len(tp.Topic), maxNameLength-len(suffix))] + suffix
}

// NewFuturePath is a folder of its own for a copy of the partition. The topic must
// be read from the name again, so one that is too long can have none:
// INVALID_TOPIC_EXCEPTION (KAFKA-4893).
func (d *Dir) NewFuturePath(tp protocol.TopicPartition) (string, error) {
	name := tp.String() + "." + uniqueID() + futureDirSuffix
	if len(name) > maxNameLength {
		return "", fmt.Errorf("%w: a folder's name of %d bytes is too long", kerr.InvalidTopicException, len(name))
	}
	return filepath.Join(d.path, name), nil
}

// Folder is a partition's folder in a Dir.
type Folder struct {
	TP   protocol.TopicPartition
	Path string
}

// Listing is what a Dir holds, each part sorted by name.
type Listing struct {
	Current []Folder // topic-partition
	Future  []Folder // copies on their way into this Dir
	Stray   []string // paths of what was put aside
}

// List reads the folder.
func (d *Dir) List() (Listing, error) {
	var l Listing
	es, err := d.fs.ReadDir(d.path)
	if err != nil {
		return l, storageErr("list", d.path, err)
	}
	for _, e := range es {
		path := filepath.Join(d.path, e.Name)
		if !e.Dir {
			continue
		} else if tp, ok := parsePartitionDir(e.Name); ok {
			l.Current = append(l.Current, Folder{tp, path})
		} else if tp, ok := parseFutureDir(e.Name); ok {
			l.Future = append(l.Future, Folder{tp, path})
		} else if strings.HasSuffix(e.Name, strayDirSuffix) {
			l.Stray = append(l.Stray, path)
		}
	}
	return l, nil
}

// PartitionPath is the folder of a partition.
func (d *Dir) PartitionPath(tp protocol.TopicPartition) string {
	return filepath.Join(d.path, tp.String())
}
