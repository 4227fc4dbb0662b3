//go:build compat

package brokertest

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/dataplane/brokertest/apache"
)

// Kafka's own tool reads what we keep of transactions.
func TestTxnFilesAreReadByKafka(t *testing.T) {
	logDir := t.TempDir()
	txnFolder(t, logDir, "t", true)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dump := func(suffix string) (lines []string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(logDir, "t-0", "*"+suffix))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", suffix, err)
		}
		cmd, err := apache.Tool(ctx, apache.V39, "dump-log", nil, "--deep-iteration", "--files", strings.Join(files, ","))
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("dump-log: %v\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return lines
	}
	has := func(lines []string, words ...string) {
		t.Helper()
		if !slices.ContainsFunc(lines, func(l string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(l, w) })
		}) {
			t.Errorf("no line with %q in\n%s", words, strings.Join(lines, "\n"))
		}
	}
	index := dump(".txnindex")
	has(index, "version: 0", "producerId: 101", "firstOffset: 1", "lastOffset: 9", "lastStableOffset: 7")
	has(index, "version: 0", "producerId: 102", "firstOffset: 13", "lastOffset: 14", "lastStableOffset: 15")
	snapshots := dump(".snapshot")
	has(snapshots, "producerId: 103", "coordinatorEpoch: -1", "currentTxnFirstOffset: OptionalLong[16]", "lastSequence: 0", "lastOffset: 16")
	has(snapshots, "producerId: 102", "coordinatorEpoch: 0", "currentTxnFirstOffset: OptionalLong.empty", "lastSequence: 2", "lastOffset: 13")
	logs := dump(".log")
	has(logs, "endTxnMarker: ABORT", "coordinatorEpoch: 0")
	has(logs, "endTxnMarker: COMMIT", "coordinatorEpoch: 0")
	has(logs, "baseOffset: 16 lastOffset: 16", "isTransactional: true")
}
