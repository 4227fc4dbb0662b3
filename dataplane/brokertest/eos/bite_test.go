package eos

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"penstock/dataplane/brokertest/nemesis"
	"penstock/dataplane/planted"
)

// TestCheckerFindsPlantedBugs runs brokers with one bug each. Each kind of anomaly is
// found in at least one of them.
func TestCheckerFindsPlantedBugs(t *testing.T) {
	if !*bites {
		t.Skip("without -eos.bites")
	}
	const s = time.Second
	still := []nemesis.Step{{At: 6 * s, Fault: nemesis.Rest}}
	// Members of every stage go, so that others go on where the group says.
	come := []nemesis.Step{
		{At: 3 * s, Fault: nemesis.Leave, A: "member-0", For: 4 * s}, {At: 4 * s, Fault: nemesis.Leave, A: "member-1", For: 4 * s},
		{At: 5 * s, Fault: nemesis.Leave, A: "member-2", For: 4 * s}, {At: 12 * s, Fault: nemesis.Rest},
	}
	// Each member dies when its offsets are stored and no commit was asked for: their
	// transaction is aborted as soon as the place has a process again, and the group waits
	// seconds for the dead one, so that the offsets are looked at meanwhile.
	var die []nemesis.Step
	for i := range 6 {
		die = append(die, nemesis.Step{At: time.Duration(3+5*(i/3)) * s, Fault: nemesis.KillInTxn, A: fmt.Sprint("member-", i)})
	}
	die = append(die, nemesis.Step{At: 15 * s, Fault: nemesis.Rest})
	slow := []nemesis.Step{{At: s, Fault: nemesis.Slow, A: "clients", B: "leader", By: 30 * time.Millisecond, For: 10 * s}, {At: 12 * s, Fault: nemesis.Rest}}
	for _, test := range []struct {
		bug      string
		finds    []string // each of them, among others
		schedule []nemesis.Step
		rate     int
		die      float64
	}{
		{planted.StableAtWatermark, []string{"dirty read"}, still, 100, 0},
		{planted.AbortedUnlisted, []string{"aborted read"}, still, 100, 0},
		{planted.CommitForAbort, []string{"aborted read"}, still, 100, 0},
		{planted.MarkerTurned, []string{"torn transaction"}, still, 100, 0},
		{planted.MarkerSkipped, []string{"lso stuck"}, still, 100, 0},
		{planted.OffsetsLost, []string{"duplicate"}, come, 100, 0},
		{planted.OffsetsOfAborted, []string{"dirty offsets", "lost write"}, die, 100, 0},
		{planted.OffsetsBack, []string{"offsets back"}, die, 100, 0},
		{planted.AnySequence, []string{"reordered"}, slow, 400, 0},
		{"", nil, come, 100, 0.01},
		{"", nil, die, 100, 0},
	} {
		t.Run(test.bug, func(t *testing.T) {
			binary := ""
			if test.bug != "" {
				binary = nemesis.WithBugs(t)
				t.Setenv("PLANTED_BUG", test.bug)
			}
			o := Options{
				Schedule: test.schedule, Rate: test.rate, Members: 2, First: 1, Die: test.die, History: io.Discard, Dir: t.TempDir(), Start: Ours(3, binary),
			}
			if test.bug != "" {
				o.Heal, o.Quiet = 20*s, 12*s
			}
			began := time.Now()
			anomalies, counts := Run(t, o)
			t.Log(Report(anomalies, counts, time.Since(began)))
			if test.bug == "" && len(anomalies) > 0 {
				t.Error("nothing is wrong with this cluster")
			}
			for _, kind := range test.finds {
				if !slices.ContainsFunc(anomalies, func(a nemesis.Anomaly) bool { return a.Kind == kind }) {
					t.Errorf("no anomaly of the kind %q", kind)
				}
			}
		})
	}
}
