package brokertest

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A collector that takes a report and never answers must not hold a stop up, and one
// that is away must not make it look failed.
func TestMetricsCollectorInTroubleDoesNotDelayAStop(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for what, l := range map[string]net.Listener{"silent": silent, "gone": gone} {
		t.Run(what, func(t *testing.T) {
			c := Start(t, Options{Settings: []string{"penstock.telemetry.metrics.endpoint=http://" + l.Addr().String() + "/v1/metrics"}})
			n := c.Brokers[0]
			c.CreateTopic("t", 1, 1) // the start is over
			began := time.Now()
			n.Stop()
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the stop took %v", took)
			}
			if _, err := os.Stat(filepath.Join(n.LogDir, ".kafka_cleanshutdown")); err != nil {
				t.Error(err)
			}
		})
	}
}
