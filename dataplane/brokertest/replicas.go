package brokertest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// SameLogs compares what the replicas of a partition have on disk, records and
// leader epochs, byte for byte. It returns how many bytes of records each has.
//
// An epoch that begins where the log ends counts for nothing: only its leader knows of it
// until it has written a batch, and has it in its file if it was stopped, or killed while
// it wrote the first one.
func (c *Cluster) SameLogs(topic string, partition int32, replicas []int32) (int, error) {
	folder := fmt.Sprintf("%s-%d", topic, partition)
	var first []byte
	var firstEpochs string
	for i, id := range replicas {
		data, epochs, err := logBytes(c.Brokers[id].replicaDir(folder))
		if err != nil {
			return 0, err
		}
		if i == 0 {
			first, firstEpochs = data, epochs
			continue
		}
		if !bytes.Equal(data, first) {
			at := 0
			for at < min(len(data), len(first)) && data[at] == first[at] {
				at++
			}
			return 0, fmt.Errorf("brokers %d and %d differ at byte %d of %d and %d", replicas[0], id, at, len(first), len(data))
		}
		if epochs != firstEpochs {
			return 0, fmt.Errorf("brokers %d and %d have epochs %q and %q", replicas[0], id, firstEpochs, epochs)
		}
	}
	return len(first), nil
}

// replicaDir is a partition's folder, in whichever of the log.dirs it lies.
func (n *Node) replicaDir(folder string) string {
	if n.SecondDir != "" {
		if path := filepath.Join(n.SecondDir, folder); vfs.Exists(vfs.OS, path) {
			return path
		}
	}
	return filepath.Join(n.LogDir, folder)
}

// logBytes joins a partition's segments in order.
func logBytes(dir string) (data []byte, epochs string, err error) {
	segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, "", err
	}
	slices.Sort(segments)
	for _, s := range segments {
		b, err := os.ReadFile(s)
		if err != nil {
			return nil, "", err
		}
		data = append(data, b...)
	}
	b, err := os.ReadFile(filepath.Join(dir, "leader-epoch-checkpoint"))
	if errors.Is(err, fs.ErrNotExist) && len(data) == 0 { // nobody has ever written to it
		err = nil
	}
	if err != nil {
		return nil, "", err
	}
	epochs, err = epochsBelow(string(b), endOf(data))
	return data, epochs, err
}

// endOf is the offset behind the last whole batch.
func endOf(data []byte) (end int64) {
	for {
		b, rest, err := recordbatch.Next(data)
		if err != nil || len(b) == 0 {
			return end
		}
		end, data = b.NextOffset(), rest
	}
}

// epochsBelow are the lines of a file of leader epochs, less its head and those that begin at or behind end.
func epochsBelow(file string, end int64) (string, error) {
	var below []string
	for i, line := range strings.Split(strings.TrimSpace(file), "\n") {
		if i < 2 { // its version and the number of entries
			continue
		}
		var epoch, start int64
		if _, err := fmt.Sscan(line, &epoch, &start); err != nil {
			return "", fmt.Errorf("line %q of a file of leader epochs: %w", line, err)
		}
		if start < end {
			below = append(below, line)
		}
	}
	return strings.Join(below, "\n"), nil
}
