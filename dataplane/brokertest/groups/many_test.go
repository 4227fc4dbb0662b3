package groups

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/dataplane/brokertest"
)

// TestManyGroups has many groups of one or two members each on one broker: all get their
// partitions, a coordinator that is killed and started again costs none of them a rebalance or
// an offset, and a group takes little memory, of its own and with its members'
// connections.
func TestManyGroups(t *testing.T) {
	n := *many
	o := Options{Workers: *workers, Partitions: 2, Session: 30 * time.Second, Rebalance: time.Minute, Commit: 5 * time.Second, Heal: 5 * time.Minute, Dir: logs(t)}
	o.Settings = []string{"offsets.topic.num.partitions=50", "zookeeper.session.timeout.ms=30000"}
	for i := range n {
		o.Groups = append(o.Groups, Group{Name: fmt.Sprintf("group-%d", i), Protocol: []Protocol{Eager, Cooperative}[i/2%2], Members: 1 + i%2})
	}
	r, end := begin(t, o, 1)
	defer end()
	r.asked = map[string]int{}
	b := r.c.Brokers[0]
	r.settle(func() error { return r.look("nobody") }) // __consumer_offsets is made
	b.Stop()
	b.Start()
	r.settle(func() error { return r.look("nobody") })
	idle := memory(t, b)
	started := 0
	for i, g := range o.Groups {
		started += g.Members
		if i%20 == 19 { // not all at once: it is not the machine that is to be tested
			r.settle(func() error { return r.most(o.Groups[:i+1], 40) })
		}
	}
	r.settle(func() error { return r.most(o.Groups, 0) })
	r.settle(r.committed)
	connected := memory(t, b)
	before := r.h.states()

	// The coordinator dies and is back. All members are heard of again, in the same generation.
	b.Kill()
	back := now()
	b.Start()
	r.settle(func() error { return r.heard(back) })
	restarted := 0 // whose members had to begin anew
	for name, after := range r.h.states() {
		if after.ended > before[name].ended {
			restarted++
			continue
		}
		if after.newest != before[name].newest {
			t.Errorf("%s went from generation %d to %d when its coordinator was killed", name, before[name].newest, after.newest)
		}
		r.settle(func() error { return r.look(name) }) // over connections to the broker that was killed at first
	}
	if restarted > n/4 {
		t.Errorf("%d groups had a commit without an answer", restarted)
	}

	// All members die, and the groups are loaded without them.
	end()
	b.Kill()
	b.Start()
	r.settle(func() error { return loaded(r, n) })
	alone := memory(t, b)
	t.Logf("%d groups, %d members, with %d KB when idle: %.1f KB a group with its members' connections, %.1f KB without them, after a load",
		n, started, idle>>10, perGroup(connected-idle, n), perGroup(alone-idle, n))
	if got := perGroup(alone-idle, n); n >= 1000 && got > 20 {
		t.Errorf("a group takes %.1f KB", got)
	}
	if anomalies, _ := r.h.Check(); len(anomalies) > 0 {
		t.Error(Report(anomalies, nil, time.Since(r.began)))
	}
}

func perGroup(bytes int64, n int) float64 { return float64(bytes) / float64(n) / 1024 }

// settle waits for what must come to be.
func (r *run) settle(cond func() error) {
	r.t.Helper()
	brokertest.Await(r.t, r.o.Heal, "all groups", cond)
}

// groupState is what is known of one group of many.
type groupState struct {
	living, ended  int
	oldest, newest int32 // generations
	owners         map[int32]int
}

// states looks at all groups at once.
func (h *History) states() map[string]*groupState {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]*groupState{}
	for _, m := range h.members {
		s := all[m.start.Group]
		if s == nil {
			s = &groupState{oldest: 1 << 30, owners: map[int32]int{}}
			all[m.start.Group] = s
		}
		if m.ended {
			s.ended++
			continue
		}
		s.living++
		s.oldest, s.newest = min(s.oldest, m.generation), max(s.newest, m.generation)
		for p := range m.owns {
			s.owners[p]++
		}
	}
	return all
}

// most says whether all groups but so many are whole. A member that could not go on, since
// a commit of it had no answer, is started anew.
func (r *run) most(groups []Group, but int) error {
	states := r.h.states()
	for _, g := range groups {
		s := states[g.Name]
		if s == nil {
			s = &groupState{}
		}
		for r.asked[g.Name] < g.Members+s.ended {
			r.asked[g.Name]++
			r.start(g, "")
		}
		whole := s.living == g.Members && s.oldest == s.newest
		for p := range r.o.Partitions {
			whole = whole && s.owners[p] == 1
		}
		if !whole {
			if but--; but < 0 {
				return fmt.Errorf("%s: %+v", g.Name, s)
			}
		}
	}
	return nil
}

// committed says whether each group has committed something.
func (r *run) committed() error {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
next:
	for _, g := range r.o.Groups {
		for _, e := range r.h.events[g.Name] {
			if e.Kind == Committed && e.Code == 0 {
				continue next
			}
		}
		return fmt.Errorf("%s has committed nothing", g.Name)
	}
	return nil
}

// heard says whether all members have had an answer to something that they sent since.
func (r *run) heard(since int64) error {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	for name, m := range r.h.members {
		if !m.ended && m.alive.Sent < since {
			return fmt.Errorf("%s has not been answered", name)
		}
	}
	return nil
}

// loaded says whether the coordinator has all groups again.
func loaded(r *run, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	all, err := r.adm.ListGroups(ctx)
	if err == nil && len(all) < n {
		err = fmt.Errorf("%d of %d groups", len(all), n)
	}
	return err
}

// memory is what the broker has of its own, in bytes: not the files that it maps.
func memory(t *testing.T, b *brokertest.Node) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); f[0] == "RssAnon:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no RssAnon")
	return 0
}
