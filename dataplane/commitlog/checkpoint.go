package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"penstock/dataplane/protocol"
)

// maxCheckpointSize bounds every text file that is read: some hundred thousand partitions.
const maxCheckpointSize = 64 << 20

// errCheckpoint marks a damaged checkpoint, metadata or properties file.
var errCheckpoint = errors.New("file is malformed")

// parseCheckpoint reads Kafka's checkpoint format, version 0: a line with the
// version, one with the number of entries, then the entries, fields words each. An
// empty file, which Kafka makes when it first starts, has no entries.
func parseCheckpoint(b []byte, fields int, entry func(f [][]byte) error) error {
	if len(b) == 0 {
		return nil
	}
	next := func() ([]byte, bool) {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return nil, false // Kafka ends every line
		}
		line := b[:i]
		b = b[i+1:]
		return bytes.TrimSuffix(line, []byte("\r")), true
	}
	version, ok := next()
	if !ok || string(version) != "0" {
		return fmt.Errorf("%w: version %.20q", errCheckpoint, version)
	}
	line, ok := next()
	count, err := strconv.ParseUint(string(line), 10, 31)
	if !ok || err != nil {
		return fmt.Errorf("%w: number of entries %.20q", errCheckpoint, line)
	}
	for i := range count {
		line, ok := next()
		if !ok {
			return fmt.Errorf("%w: %d entries instead of %d", errCheckpoint, i, count)
		}
		f := bytes.Fields(line)
		if len(f) != fields {
			return fmt.Errorf("%w: entry %.80q", errCheckpoint, line)
		}
		if err := entry(f); err != nil {
			return fmt.Errorf("%w: entry %.80q: %w", errCheckpoint, line, err)
		}
	}
	if len(bytes.TrimSpace(b)) > 0 {
		return fmt.Errorf("%w: more than %d entries", errCheckpoint, count)
	}
	return nil
}

func formatCheckpoint(lines []string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "0\n%d\n", len(lines))
	for _, l := range lines {
		b.WriteString(l)
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

func parseOffsets(b []byte) (map[protocol.TopicPartition]int64, error) {
	out := map[protocol.TopicPartition]int64{}
	err := parseCheckpoint(b, 3, func(f [][]byte) error {
		p, err1 := strconv.ParseInt(string(f[1]), 10, 32)
		o, err2 := strconv.ParseInt(string(f[2]), 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if p < 0 {
			return fmt.Errorf("partition %d", p)
		}
		out[protocol.TopicPartition{Topic: string(f[0]), Partition: int32(p)}] = o
		return nil
	})
	return out, err
}
