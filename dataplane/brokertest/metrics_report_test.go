package brokertest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"
	"time"
)

// documentedMetrics are the names, units and descriptions that docs/operations.md lists.
func documentedMetrics(t *testing.T) map[string][2]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][2]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(penstock[^`]*)` \\| `([^`]*)` \\| [^|]* \\| (.*) \\|$").FindAllStringSubmatch(string(doc), -1) {
		all[row[1]] = [2]string{row[2], row[3]}
	}
	return all
}

// A broker exports the metrics that docs/operations.md lists, and no others.
func TestMetricsAreThoseThatAreDocumented(t *testing.T) {
	t.Parallel()
	want := documentedMetrics(t)
	reports := make(chan map[string][2]string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m struct {
			ResourceMetrics []struct {
				ScopeMetrics []struct {
					Metrics []struct{ Name, Unit, Description string }
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
			return
		}
		names := map[string][2]string{}
		for _, rm := range m.ResourceMetrics {
			for _, sm := range rm.ScopeMetrics {
				for _, metric := range sm.Metrics {
					names[metric.Name] = [2]string{metric.Unit, metric.Description}
				}
			}
		}
		select {
		case reports <- names:
		default: // nobody looks any more
		}
	}))
	t.Cleanup(collector.Close)
	c := Start(t, Options{Settings: []string{
		"penstock.telemetry.metrics.endpoint=" + collector.URL + "/v1/metrics", "penstock.telemetry.metrics.interval.ms=100",
	}})
	c.CreateTopic("kept", 1, 1, "cleanup.policy=compact")
	var last map[string][2]string
	for deadline := time.After(30 * time.Second); !maps.Equal(last, want); {
		select {
		case last = <-reports:
		case <-deadline:
			t.Fatalf("reported is\n%v, documented\n%v", last, want)
		}
	}
}
