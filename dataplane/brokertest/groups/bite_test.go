package groups

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"penstock/dataplane/brokertest"
)

// TestCheckerBites runs members against coordinators with a bug each, which the checker
// must find, and once against one without.
func TestCheckerBites(t *testing.T) {
	if !*bites {
		t.Skip("without -groups.bites")
	}
	binary := filepath.Join(t.TempDir(), "penstock-broker-with-bugs")
	if err := brokertest.Build(binary, "-tags", "plantedbug"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		planted  string
		protocol Protocol
		only     []Step
		alone    bool
		finds    []string // each of them
	}{
		{"early expiry", Cooperative, []Step{Hold, Freeze}, false, []string{"two owners", "fenced early"}},
		{"no fencing", Eager, []Step{Freeze}, true, []string{"offset back"}},
		{"no waiting", Cooperative, []Step{Join, Leave}, false, []string{"two owners", "fenced early"}},
		{"commits in memory", Eager, []Step{Move}, false, []string{"offset back"}},
		{"restless", Eager, []Step{Join, Leave}, false, []string{"storm"}},
		{"", Cooperative, []Step{Join, Leave, Hold, Freeze, Move}, false, nil},
	} {
		t.Run(test.planted, func(t *testing.T) {
			t.Setenv("PLANTED_BUG", test.planted)
			began := time.Now()
			anomalies, counts := Run(t, Options{
				Seed: 1, Length: 40 * time.Second, Round: 40 * time.Second, Pace: 500 * time.Millisecond, Workers: 4, Partitions: 12,
				Session: 3 * time.Second, Rebalance: 5 * time.Second, Heal: 30 * time.Second, Commit: 300 * time.Millisecond, Quiet: 2 * time.Second, Dir: t.TempDir(),
				Groups: []Group{{Name: "g", Protocol: test.protocol, Members: 8}}, Only: test.only, Alone: test.alone, Binary: binary,
			})
			t.Log(Report(anomalies, counts, time.Since(began)))
			if test.planted == "" && len(anomalies) > 0 {
				t.Error("nothing is wrong with this coordinator")
			}
			for _, kind := range test.finds {
				if !slices.ContainsFunc(anomalies, func(a Anomaly) bool { return a.Kind == kind }) {
					t.Errorf("no anomaly of the kind %q", kind)
				}
			}
		})
	}
}
