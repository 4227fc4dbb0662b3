//go:build compat

package brokertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/dataplane/brokertest/apache"
)

// dumps has Kafka's tool look at copies of the folder, beside the next leg.
type dumps struct{ wg sync.WaitGroup }

func (d *dumps) wait() { d.wg.Wait() }

// dump copies the folder and has the tool read every file in it; of a broker
// that was killed only the segments, as an index is then for the next start to mend.
func (f *folder) dump(what string, killed bool) {
	f.t.Helper()
	dir, err := os.MkdirTemp("", "penstock-carry")
	if err != nil {
		f.t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(f.data)); err != nil {
		f.t.Fatal(err)
	}
	t := f.t
	f.dumps.wg.Go(func() {
		defer os.RemoveAll(dir)
		logs, others := dumpable(t, dir)
		if killed {
			if len(runDump(t, what, "--deep-iteration", logs)) < len(logs) {
				t.Errorf("%s: the tool has not read all segments", what)
			}
			return
		}
		out := runDump(t, what, "--deep-iteration", append(logs, others...))
		want := map[string]*regexp.Regexp{
			"batches":              regexp.MustCompile(`(?m)^baseOffset: `),
			"index entries":        regexp.MustCompile(`(?m)^offset: \d+ position: `),
			"time index entries":   regexp.MustCompile(`(?m)^timestamp: \d+ offset: `),
			"producers":            regexp.MustCompile(`(?m)^producerId: \d+ producerEpoch: `),
			"aborted transactions": regexp.MustCompile(`(?m)^version: 0 producerId: \d+ firstOffset: `),
		}
		for name, re := range want {
			n := len(re.FindAllString(out, -1))
			if n == 0 && name != "aborted transactions" {
				t.Errorf("%s: the tool has found no %s", what, name)
			}
			t.Logf("%s: %d %s", what, n, name)
		}
		var indexes []string
		for _, o := range others {
			if strings.HasSuffix(o, "index") && !strings.HasSuffix(o, ".txnindex") {
				indexes = append(indexes, o)
			}
		}
		passed := strings.Count(runDump(t, what, "--index-sanity-check", indexes), " passed sanity check.")
		t.Logf("%s: %d of %d indexes passed", what, passed, len(indexes))
		if passed != len(indexes) {
			t.Errorf("%s: not all indexes passed", what)
		}
	})
}

// dumpable lists the files that the tool can read. It calls an index of an
// empty segment corrupt, and a time index, too.
func dumpable(t *testing.T, dir string) (logs, others []string) {
	all, err := filepath.Glob(filepath.Join(dir, "*", "*", "*"))
	if err != nil {
		t.Error(err)
	}
	for _, path := range all {
		st, err := os.Stat(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if strings.HasSuffix(filepath.Dir(path), "-delete") {
			continue
		}
		switch filepath.Ext(path) {
		case ".log":
			logs = append(logs, path)
		case ".index", ".timeindex", ".txnindex":
			if st.Size() > 0 {
				others = append(others, path)
			}
		case ".snapshot":
			others = append(others, path)
		}
	}
	return logs, others
}

// complaint is what the tool says of things that are not in order.
var complaint = regexp.MustCompile(`(?i)mismatch|non-consecutive|non-secutive|out of order|could not|exception|corrupt|isvalid: false|entries beyond|truncated|not found|not contained`)

// cleaned is what the tool says of any log that has been compacted, also by Kafka:
// there are holes in the offsets, and an entry of the time index may name a
// batch's largest timestamp of before.
var cleaned = regexp.MustCompile(`^(Non-consecutive offsets|Found timestamp mismatch) in.*/(kept|forgotten|__consumer_offsets|__transaction_state)-\d+/`)

func runDump(t *testing.T, what, mode string, files []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd, err := apache.Tool(ctx, apache.V39, "dump-log", []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}, mode, "--files", strings.Join(files, ","))
	if err != nil {
		t.Error(err)
		return ""
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: dump-log %s: %v", what, mode, err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "| offset") { // a record, whatever it holds
			continue
		}
		if cleaned.MatchString(line) {
			continue
		}
		if complaint.MatchString(line) {
			if n++; n <= 5 {
				t.Errorf("%s: dump-log %s: %s", what, mode, fmt.Sprintf("%.300s", strings.TrimSpace(line)))
			}
		}
	}
	return string(out)
}
