package chaos

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/dataplane/brokertest"
	"penstock/dataplane/brokertest/nemesis"
)

var (
	seconds = flag.Int("chaos.seconds", 15, "how long TestChaos breaks things, rests not counted")
	seed    = flag.Uint64("chaos.seed", 0, "seed of the schedule; 0 takes the time")
	replay  = flag.String("chaos.replay", "", "a history's file, whose schedule is carried out once more")
	keep    = flag.String("chaos.keep", "", "folder for the history and, of a failed run, the brokers' logs and data; empty: a temporary one")
	brokers = flag.Int("chaos.brokers", 3, "brokers of the cluster")
	clock   = flag.Bool("chaos.clock", false, "let wall clocks jump, too: Go's library is built anew for that")
	bites   = flag.Bool("chaos.bites", false, "run TestCheckerBites, which takes two minutes")
	rate    = flag.Int("chaos.rate", 50, "records a second and writer")
)

func TestMain(m *testing.M) { os.Exit(brokertest.Main(m)) }

// TestChaos breaks a cluster as its seed says. No anomaly may show.
func TestChaos(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	var binary string
	var without []nemesis.Fault
	if *clock {
		var err error
		if binary, err = nemesis.BuildWithClock(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	} else {
		without = append(without, nemesis.Clock)
	}
	schedule := nemesis.Draw(s, time.Duration(*seconds)*time.Second, nemesis.Mix{
		Weights: nemesis.Plain, Roles: []string{"controller", "leader"}, Brokers: *brokers, Without: without,
	})
	if *replay != "" {
		f, err := os.Open(*replay)
		if err != nil {
			t.Fatal(err)
		}
		schedule, err = nemesis.ReadSchedule(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := *keep
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "penstock-chaos"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("history, logs and data are left in %s", dir)
				return
			}
			_ = os.RemoveAll(dir)
		})
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	history, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer history.Close()
	began := time.Now()
	anomalies, counts := Run(t, Options{
		Binary: binary, Schedule: schedule, Brokers: *brokers, Rate: *rate, History: history, Logs: dir,
		Topics: []Topic{Idempotent, AcksAll, AcksOne, AcksNone},
		// Clients' timestamps are far in a broker's future when its clock goes back.
		Config: []string{"min.insync.replicas=2", "message.timestamp.after.max.ms=9223372036854775807"},
	})
	t.Log(Report(anomalies, counts, time.Since(began)))
	if len(anomalies) > 0 {
		t.Fail()
	}
}
