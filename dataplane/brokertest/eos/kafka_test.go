//go:build compat

package eos

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"penstock/dataplane/brokertest/apache"
	"penstock/dataplane/brokertest/nemesis"
)

// kafkaMix is what Apache Kafka is broken by: there are no doors in front of it.
var kafkaMix = []nemesis.Weight{
	{Fault: nemesis.Kill, Weight: 5}, {Fault: nemesis.Pause, Weight: 5}, {Fault: nemesis.Elect, Weight: 2}, {Fault: nemesis.Reassign, Weight: 2},
	{Fault: nemesis.KillMember, Weight: 10}, {Fault: nemesis.PauseMember, Weight: 6}, {Fault: nemesis.Replace, Weight: 8}, {Fault: nemesis.Leave, Weight: 4}, {Fault: nemesis.Join, Weight: 4},
}

// TestExactlyOnceOfApacheKafka holds the checker against a cluster that is known to
// be right: it finds nothing there.
func TestExactlyOnceOfApacheKafka(t *testing.T) {
	runDrawn(t, startKafka, kafkaMix, 3)
}

func startKafka(t testing.TB, j *nemesis.Journal, _ func() map[nemesis.Party]int) *nemesis.Rig {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	brokers, err := apache.StartCluster(ctx, dir, 3, append([]string{"transaction.state.log.min.isr=2", "group.min.session.timeout.ms=1000"}, Settings...)...)
	if err != nil {
		t.Fatal(err)
	}
	r := &nemesis.Rig{TB: t, Journal: j, First: 1}
	for _, b := range brokers {
		t.Cleanup(func() {
			b.Kill()
			_ = b.Stop()
			if t.Failed() && *keep != "" {
				if log, err := os.ReadFile(b.LogFile()); err == nil {
					_ = os.WriteFile(filepath.Join(*keep, filepath.Base(b.Dir)+".log"), log, 0o644)
				}
			}
		})
		r.Brokers = append(r.Brokers, &kafkaBroker{b, t})
		r.Seeds = append(r.Seeds, b.Addr)
	}
	r.Ready()
	return r
}

// kafkaBroker is one of Apache Kafka's under a nemesis.
type kafkaBroker struct {
	*apache.Broker
	t testing.TB
}

func (b *kafkaBroker) Signal(sig syscall.Signal) { _ = syscall.Kill(b.PID(), sig) }

// Launch waits until the broker answers, unlike ours.
func (b *kafkaBroker) Launch() {
	if err := b.Up(context.Background(), 3*time.Minute); err != nil {
		b.t.Error(err)
	}
}
