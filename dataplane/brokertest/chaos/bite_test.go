package chaos

import (
	"io"
	"slices"
	"testing"
	"time"

	"penstock/dataplane/brokertest/nemesis"
)

// TestCheckerBites runs clusters that must lose records, and each of them once
// more with what makes it safe: the checker finds the loss, and nothing there.
func TestCheckerBites(t *testing.T) {
	if !*bites {
		t.Skip("without -chaos.bites")
	}
	const ms = time.Millisecond
	// The followers are away, the leader goes on alone, and is gone when they are
	// back.
	alone := []nemesis.Step{
		{At: 500 * ms, Fault: nemesis.Kill, A: "1", For: 8000 * ms}, {At: 500 * ms, Fault: nemesis.Kill, A: "2", For: 8000 * ms},
		{At: 7500 * ms, Fault: nemesis.Kill, A: "0", For: 10000 * ms}, {At: 19000 * ms, Fault: nemesis.Rest},
	}
	// The leader is cut off from all but its clients.
	zombie := []nemesis.Step{{At: 1000 * ms, Fault: nemesis.Isolate, A: "0", For: 7000 * ms, Lose: true}, {At: 10000 * ms, Fault: nemesis.Rest}}
	// One follower gets nothing for a while, and is to lead in the end.
	var behind []nemesis.Step
	for i, ids := range [][2]string{{"0", "1"}, {"1", "2"}, {"2", "0"}} {
		at := time.Duration(i)*9000*ms + 1000*ms
		behind = append(behind, nemesis.Step{At: at, Fault: nemesis.Cut, A: ids[0], B: ids[1], For: 2500 * ms, Lose: true},
			nemesis.Step{At: at + 1500*ms, Fault: nemesis.Kill, A: ids[0], For: 3000 * ms}, nemesis.Step{At: at + 7000*ms, Fault: nemesis.Rest})
	}
	all := Topic{Name: "all", Acks: "all", Keeps: true, Once: true, Ordered: true}
	one := Topic{Name: "one", Acks: "1", Keeps: true}
	for _, test := range []struct {
		name     string
		schedule []nemesis.Step
		topic    Topic
		config   []string
		planted  string
		finds    string // among others
	}{
		{"unclean election", alone, all, []string{"min.insync.replicas=1", "unclean.leader.election.enable=true"}, "", "lost"},
		{"clean election", alone, all, []string{"min.insync.replicas=1"}, "", ""},
		{"acks=1", zombie, one, []string{"min.insync.replicas=1"}, "", "lost"},
		{"acks=all", zombie, all, []string{"min.insync.replicas=2"}, "", ""},
		{"early watermark", behind, all, []string{"min.insync.replicas=2"}, "early watermark", "lost"},
		{"right watermark", behind, all, []string{"min.insync.replicas=2"}, "", ""},
		{"no truncation", zombie, Topic{Name: "one", Acks: "1"}, []string{"min.insync.replicas=1"}, "no truncation", "not healed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := Options{Schedule: test.schedule, Brokers: 3, Rate: 100, Topics: []Topic{test.topic}, Config: test.config, History: io.Discard, Heal: time.Minute}
			if test.finds == "not healed" {
				o.Heal = 30 * time.Second // far more than the same cluster takes without the bug
			}
			if test.planted != "" {
				o.Binary = nemesis.WithBugs(t)
				t.Setenv("PLANTED_BUG", test.planted)
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
