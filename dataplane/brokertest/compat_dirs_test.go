//go:build compat

package brokertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/apache"
)

// TestDirsKafkasToolsAgainstOurs lets Kafka's own tools delete records and describe
// the folders. (Its reassign-partitions also asks for ongoing reassignments, an API
// that is not served, so it cannot move a replica here.)
func TestDirsKafkasToolsAgainstOurs(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	c := Start(t, Options{Each: func(int) []string { return []string{"log.dirs=" + one + "," + two} }})
	c.CreateTopic("t", 2, 1)
	cl := c.Client(kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 10 {
		if err := cl.ProduceSync(context.Background(), &kgo.Record{Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	tool := func(version, name string, args ...string) string {
		t.Helper()
		cmd, err := apache.Tool(ctx, version, name, nil, append([]string{"--bootstrap-server", c.Brokers[0].Addr}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s of %s: %v\n%s", name, version, err, out)
		}
		return string(out)
	}
	for i, version := range []string{apache.V39, apache.V44} {
		upTo := 4 + i
		orders := filepath.Join(dir, "orders.json")
		if err := os.WriteFile(orders, fmt.Appendf(nil, `{"version":1,"partitions":[{"topic":"t","partition":0,"offset":%d}]}`, upTo), 0o644); err != nil {
			t.Fatal(err)
		}
		if out := tool(version, "delete-records", "--offset-json-file", orders); !strings.Contains(out, fmt.Sprintf("low_watermark: %d", upTo)) {
			t.Errorf("delete-records of %s says:\n%s", version, out)
		}
		out := tool(version, "log-dirs", "--describe", "--topic-list", "t")
		start := strings.Index(out, "{")
		if start < 0 {
			t.Fatalf("log-dirs of %s says:\n%s", version, out)
		}
		var described struct {
			Brokers []struct {
				LogDirs []struct {
					LogDir     string
					Error      *string
					Partitions []struct {
						Partition       string
						Size, OffsetLag int64
						IsFuture        bool
					}
				}
			}
		}
		if err := json.NewDecoder(strings.NewReader(out[start:])).Decode(&described); err != nil || len(described.Brokers) != 1 {
			t.Fatalf("log-dirs of %s says %v:\n%s", version, err, out)
		}
		found := map[string]string{}
		for _, d := range described.Brokers[0].LogDirs {
			for _, p := range d.Partitions {
				found[p.Partition] = d.LogDir
				if p.IsFuture || p.OffsetLag != 0 || (p.Size > 0) != (p.Partition == "t-0") {
					t.Errorf("%s: %+v", version, p)
				}
			}
		}
		if len(found) != 2 || found["t-0"] == found["t-1"] || filepath.Dir(found["t-0"]) != dir {
			t.Errorf("%s: folders %v", version, found)
		}
	}
}
