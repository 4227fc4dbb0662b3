package groups

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"penstock/dataplane/brokertest"
)

var (
	length    = flag.Duration("groups.length", 20*time.Second, "how long TestGroups does things to members, rests not counted")
	members   = flag.Int("groups.members", 8, "members of each group, at most at a time")
	protocols = flag.String("groups.protocols", "eager,cooperative,consumer", "a group for each of these: eager, cooperative, consumer")
	seed      = flag.Uint64("groups.seed", 0, "what is done to whom; 0 takes the time")
	pace      = flag.Duration("groups.pace", 400*time.Millisecond, "time between two steps, on average")
	session   = flag.Duration("groups.session", 3*time.Second, "session timeout of members; the rebalance timeout is half as much again")
	commit    = flag.Duration("groups.commit", 300*time.Millisecond, "time between two commits of a member")
	workers   = flag.Int("groups.workers", 4, "processes that the members live in")
	round     = flag.Duration("groups.round", 10*time.Second, "time between two rests")
	keep      = flag.String("groups.keep", "", "folder for the members' logs; empty: a temporary one, kept if the run fails")
	heal      = flag.Duration("groups.heal", 90*time.Second, "how long a mended group may take to be whole")
	many      = flag.Int("groups.many", 40, "groups of TestManyGroups")
	bites     = flag.Bool("groups.bites", false, "run TestCheckerBites, which takes some minutes")
)

func TestMain(m *testing.M) {
	WorkerMain()
	os.Exit(brokertest.Main(m))
}

// logs is a folder for the members' logs.
func logs(t *testing.T) string {
	t.Helper()
	if *keep != "" {
		if err := os.MkdirAll(*keep, 0o755); err != nil {
			t.Fatal(err)
		}
		return *keep
	}
	dir, err := os.MkdirTemp("", "penstock-groups")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the members' logs are left in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// TestGroups lets members come and go as its seed says. No anomaly may show.
func TestGroups(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	o := Options{
		Seed: s, Length: *length, Round: *round, Pace: *pace, Workers: *workers, Partitions: int32(*members) * 5 / 4,
		Session: *session, Rebalance: *session * 3 / 2, Heal: *heal, Commit: *commit, Quiet: 2 * time.Second, Dir: logs(t),
	}
	for _, p := range strings.Split(*protocols, ",") {
		o.Groups = append(o.Groups, Group{Name: "group-" + p, Protocol: Protocol(p), Members: *members})
	}
	began := time.Now()
	anomalies, counts := Run(t, o)
	t.Log(Report(anomalies, counts, time.Since(began)))
	if len(anomalies) > 0 {
		t.Fail()
	}
	for group, c := range counts { // else it has tested nothing
		if c.Commits == 0 || c.Generations < 3 || c.Intervals == 0 || c.Fetches == 0 {
			t.Errorf("%s: %+v", group, c)
		}
	}
}
