package eos

import (
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
	slow := []nemesis.Step{{At: s, Fault: nemesis.Slow, A: "clients", B: "leader", By: 30 * time.Millisecond, For: 10 * s}, {At: 12 * s, Fault: nemesis.Rest}}
	for _, test := range []struct {
		bug      string
		finds    string // among others
		schedule []nemesis.Step
		rate     int
		die      float64
	}{
		{planted.StableAtWatermark, "dirty read", still, 100, 0},
		{planted.AbortedUnlisted, "aborted read", still, 100, 0},
		{planted.CommitForAbort, "aborted read", still, 100, 0},
		{planted.MarkerTurned, "torn transaction", still, 100, 0},
		{planted.MarkerSkipped, "lso stuck", still, 100, 0},
		{planted.OffsetsLost, "duplicate", come, 100, 0},
		{planted.OffsetsOfAborted, "dirty offsets", come, 100, 0.01},
		{planted.OffsetsOfAborted, "lost write", come, 100, 0.01},
		{planted.OffsetsBack, "offsets back", come, 100, 0.01},
		{planted.AnySequence, "reordered", slow, 400, 0},
		{"", "", come, 100, 0.01},
	} {
		t.Run(test.bug+" "+test.finds, func(t *testing.T) {
			binary := ""
			if test.bug != "" {
				binary = nemesis.WithBugs(t)
				t.Setenv("PLANTED_BUG", test.bug)
			}
			o := Options{
				Schedule: test.schedule, Rate: test.rate, Members: 2, First: 1, Die: test.die, History: io.Discard, Dir: t.TempDir(), Start: Ours(3, binary),
			}
			if test.finds != "" {
				o.Heal, o.Quiet = 20*s, 12*s
			}
			began := time.Now()
			anomalies, counts := Run(t, o)
			t.Log(Report(anomalies, counts, time.Since(began)))
			if test.finds == "" && len(anomalies) > 0 {
				t.Error("nothing is wrong with this cluster")
			}
			if test.finds != "" && !slices.ContainsFunc(anomalies, func(a nemesis.Anomaly) bool { return a.Kind == test.finds }) {
				t.Errorf("no anomaly of the kind %q", test.finds)
			}
		})
	}
}
