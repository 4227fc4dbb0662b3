package eos

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
	seconds = flag.Int("eos.seconds", 20, "how long TestExactlyOnce breaks things, rests not counted")
	seed    = flag.Uint64("eos.seed", 0, "seed of the schedule; 0 takes the time")
	replay  = flag.String("eos.replay", "", "a history's file, whose schedule is carried out once more")
	keep    = flag.String("eos.keep", "", "folder for the history and, of a failed run, the brokers' logs and data; empty: a temporary one")
	each    = flag.Int("eos.members", 2, "members of each stage")
	first   = flag.Int("eos.first", 1, "how many of them speak the first version of the transaction protocol; with 0, what a cut has held may arrive late")
	rate    = flag.Int("eos.rate", 100, "inputs a second")
	verbose = flag.Bool("eos.verbose", false, "members log what their client does")
	bites   = flag.Bool("eos.bites", false, "run TestCheckerFindsPlantedBugs, which takes minutes")
)

func TestMain(m *testing.M) {
	if IsMember() {
		os.Exit(MemberMain())
	}
	os.Exit(brokertest.Main(m))
}

// TestExactlyOnce breaks a cluster and its clients as its seed says. No anomaly may
// show.
func TestExactlyOnce(t *testing.T) {
	runDrawn(t, Ours(3, ""), Mix, 3)
}

// runDrawn carries out the schedule that the flags say.
func runDrawn(t *testing.T, start func(testing.TB, *nemesis.Journal, func() map[nemesis.Party]int) *nemesis.Rig, mix []nemesis.Weight, brokers int) {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	schedule := nemesis.Draw(s, time.Duration(*seconds)*time.Second, nemesis.Mix{
		Weights: mix, Roles: Roles, Brokers: brokers, Members: *each * (len(Topics) - 1),
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
		if dir, err = os.MkdirTemp("", "penstock-eos"); err != nil {
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
		Schedule: schedule, Rate: *rate, Members: *each, First: *first, Die: 0.0003, History: history, Dir: dir, Verbose: *verbose, Start: start,
	})
	t.Log(Report(anomalies, counts, time.Since(began)))
	if len(anomalies) > 0 {
		t.Fail()
	}
	if last := counts.Committed; last == 0 || counts.Aborted == 0 {
		t.Errorf("%d transactions were committed and %d aborted: nothing was shown", last, counts.Aborted)
	}
}
