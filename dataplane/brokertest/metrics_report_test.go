package brokertest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestMetricsTellOfLogsAndOfTheirCompaction(t *testing.T) {
	t.Parallel()
	reports := make(chan map[string]bool, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m struct {
			ResourceMetrics []struct {
				ScopeMetrics []struct{ Metrics []struct{ Name string } }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
			return
		}
		names := map[string]bool{}
		for _, rm := range m.ResourceMetrics {
			for _, sm := range rm.ScopeMetrics {
				for _, metric := range sm.Metrics {
					names[metric.Name] = true
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
	want := []string{
		"penstock.partition.count", "penstock.partition.leaders", "penstock.log.size",
		"penstock.cleaner.max_dirty_ratio", "penstock.cleaner.max_dirty_age", "penstock.cleaner.uncleanable.count",
		"penstock.cleaner.uncleanable.size", "penstock.cleaner.cleans", "penstock.cleaner.failures", "penstock.cleaner.read", "penstock.cleaner.written",
	}
	var missing []string
	for deadline := time.After(30 * time.Second); ; {
		select {
		case names := <-reports:
			missing = missing[:0]
			for _, name := range want {
				if !names[name] {
					missing = append(missing, name)
				}
			}
			if len(missing) == 0 {
				return
			}
		case <-deadline:
			t.Fatalf("not reported within 30 s: %q", missing)
		}
	}
}
