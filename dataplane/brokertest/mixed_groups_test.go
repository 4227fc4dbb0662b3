//go:build compat

package brokertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
)

// mixedTeam is a classic group of consumers that share the topic "work".
type mixedTeam struct {
	teamOf
	c           *Cluster
	ctx         context.Context
	group       string
	cooperative bool
	static      bool
	members     []*kgo.Client
	asked       []*atomic.Int32 // by member: how often it was told to take or give partitions
	polls       sync.WaitGroup
}

// joins brings a member in; a static one in the place of that which was there before.
func (m *mixedTeam) joins(i int) {
	m.c.t.Helper()
	asked := &atomic.Int32{}
	m.mu.Lock()
	m.owns[i] = map[int32]bool{}
	m.mu.Unlock()
	gone := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		asked.Add(1)
		m.gone(i, lost["work"])
	}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(m.group), kgo.ConsumeTopics("work"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6 * time.Second), kgo.RebalanceTimeout(10 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(200 * time.Millisecond), kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			asked.Add(1)
			m.assigned(i, got["work"])
		}),
		kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone),
	}
	if m.cooperative {
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if m.static {
		opts = append(opts, kgo.InstanceID(fmt.Sprint("instance-", i)))
	}
	cl := m.c.Client(opts...)
	m.polls.Go(func() {
		for {
			fs := cl.PollFetches(m.ctx)
			if fs.IsClientClosed() || m.ctx.Err() != nil {
				return
			}
			fs.EachRecord(func(r *kgo.Record) {
				m.mu.Lock()
				m.got[string(r.Value)]++
				m.mu.Unlock()
				cl.MarkCommitRecords(r)
			})
		}
	})
	if i < len(m.members) {
		m.members[i], m.asked[i] = cl, asked
	} else {
		m.members, m.asked = append(m.members, cl), append(m.asked, asked)
	}
}

func (m *mixedTeam) shared(want ...int) {
	m.c.t.Helper()
	Await(m.c.t, time.Minute, fmt.Sprint(m.group, " sharing out ", want), func() error {
		if n := m.counts(); !slices.Equal(n, want) {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
}

// seen is the group as its coordinator describes it and its members see it.
func (m *mixedTeam) seen() string {
	t := m.c.t
	t.Helper()
	var d kmsg.DescribeGroupsResponseGroup
	if err := m.c.atLeader(t.(*testing.T), "__consumer_offsets", coordinator.PartitionFor(m.group, 2), "a description of "+m.group, func(w *wire) int16 {
		req := at(kmsg.NewPtrDescribeGroupsRequest(), 5)
		req.Groups = []string{m.group}
		d = ask[*kmsg.DescribeGroupsResponse](w, req).Groups[0]
		return d.ErrorCode
	}); err != nil {
		t.Fatal(err)
	}
	lines := []string{fmt.Sprint(d.State, " ", d.ProtocolType, " ", d.Protocol)}
	for _, dm := range d.Members {
		lines = append(lines, fmt.Sprintf("%s %s %s %s %x %x", dm.MemberID, deref(dm.InstanceID), dm.ClientID, dm.ClientHost, dm.ProtocolMetadata, dm.MemberAssignment))
	}
	for _, cl := range m.members {
		id, generation := cl.GroupMetadata()
		lines = append(lines, fmt.Sprint(id, " in ", generation))
	}
	slices.Sort(lines)
	return fmt.Sprint(lines)
}

// undisturbed works with all teams for longer than a session lasts, while f happens, and fails
// for every member that is told of a rebalance, every record that is not consumed exactly once,
// and every group that looks different afterwards.
func (c *Cluster) undisturbed(ctx context.Context, teams []*mixedTeam, what string, f func()) {
	t := c.t
	t.Helper()
	before := map[*mixedTeam]string{}
	asked := map[*atomic.Int32]int32{}
	for _, m := range teams {
		before[m] = m.seen()
		for _, n := range m.asked {
			asked[n] = n.Load()
		}
	}
	cl := c.Client(kgo.DefaultProduceTopic("work"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	sent := 0
	work := func() {
		t.Helper()
		for p := range int32(4) {
			if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: fmt.Append(nil, what, " ", sent)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		for _, m := range teams {
			Await(t, 30*time.Second, fmt.Sprintf("%s: %s consuming all", what, m.group), func() error {
				m.mu.Lock()
				defer m.mu.Unlock()
				for i := range sent {
					if n := m.got[fmt.Sprint(what, " ", i)]; n != 1 {
						return fmt.Errorf("record %d %d times", i, n)
					}
				}
				return nil
			})
		}
	}
	work()
	f()
	for began := time.Now(); time.Since(began) < 8*time.Second; {
		work()
	}
	adm := kadm.NewClient(cl)
	ends, err := adm.ListEndOffsets(ctx, "work")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range teams {
		if after := m.seen(); after != before[m] {
			t.Errorf("%s: %s was\n%s\nand is\n%s", what, m.group, before[m], after)
		}
		for i, n := range m.asked {
			if n.Load() != asked[n] {
				t.Errorf("%s: member %d of %s was told of a rebalance %d times", what, i, m.group, n.Load()-asked[n])
			}
		}
		Await(t, 30*time.Second, fmt.Sprintf("%s: the offsets of %s", what, m.group), func() error {
			rs, err := adm.FetchOffsets(ctx, m.group)
			if err == nil {
				err = rs.Error()
			}
			ends.Each(func(o kadm.ListedOffset) {
				if r, _ := rs.Lookup("work", o.Partition); err == nil && r.At != o.Offset {
					err = fmt.Errorf("partition %d: %d of %d", o.Partition, r.At, o.Offset)
				}
			})
			return err
		})
	}
}

// Groups of the classic protocol go from coordinators of one make to the other's and back, all
// of them at once, in both directions: eager and cooperative ones, of dynamic and static members.
// The members go on in their generation and are told of no rebalance. What happens after that
// is decided by who coordinates now: a static member comes back, one joins and leaves, a member
// that is silent is expelled.
func TestMixedGroupsChangeHands(t *testing.T) {
	c := startMixed(t, 1, 1, "offsets.topic.num.partitions=2", "group.min.session.timeout.ms=1000")
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	const ours, theirs = 0, 1
	c.assign("__consumer_offsets", [][]int32{{ours, theirs}, {theirs, ours}}, "cleanup.policy=compact")
	c.assign("work", [][]int32{{ours, theirs}, {theirs, ours}, {ours, theirs}, {theirs, ours}})
	var teams []*mixedTeam
	defer func() {
		cancel()
		for _, m := range teams {
			m.polls.Wait()
		}
	}()
	for p := range int32(2) {
		for _, cooperative := range []bool{false, true} {
			for _, static := range []bool{false, true} {
				kind := fmt.Sprintf("cooperative-%v-static-%v", cooperative, static)
				m := &mixedTeam{teamOf: teamOf{owns: map[int]map[int32]bool{}, got: map[string]int{}}, c: c, ctx: ctx, group: named(kind, p, 2), cooperative: cooperative, static: static}
				teams = append(teams, m)
				m.joins(0)
				m.joins(1)
			}
		}
	}
	// silent has a group with each coordinator whose member is not heard of again.
	silent := func(name string) (groups []string) {
		t.Helper()
		for p := range int32(2) {
			group := named("silent-"+name, p, 2)
			var code int16
			if err := c.atLeader(t, "__consumer_offsets", p, "the coordinator of "+group, func(w *wire) int16 {
				req := classicConsumer(group, "", "work")
				req.SessionTimeoutMillis = 8_000
				r := ask[*kmsg.JoinGroupResponse](w, req)
				if r.ErrorCode == kerr.MemberIDRequired.Code {
					req.MemberID = r.MemberID
					r = ask[*kmsg.JoinGroupResponse](w, req)
				}
				if code = r.ErrorCode; code != 0 {
					return code
				}
				return ask[*kmsg.SyncGroupResponse](w, syncOf(group, r.MemberID, r.Generation, nil, map[string]string{r.MemberID: "all"})).ErrorCode
			}); err != nil {
				t.Fatal(err)
			}
			groups = append(groups, group)
		}
		return groups
	}
	members := func(group string) (n int) {
		t.Helper()
		if err := c.atLeader(t, "__consumer_offsets", coordinator.PartitionFor(group, 2), "a description of "+group, func(w *wire) int16 {
			req := at(kmsg.NewPtrDescribeGroupsRequest(), 5)
			req.Groups = []string{group}
			d := ask[*kmsg.DescribeGroupsResponse](w, req).Groups[0]
			n = len(d.Members)
			return d.ErrorCode
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	move := func(name string, to ...int32) func() {
		return func() {
			t.Helper()
			groups := silent(name)
			c.lead("__consumer_offsets", to...)
			for _, g := range groups {
				if members(g) != 1 {
					t.Fatalf("%s: %s has no member when it has been moved", name, g)
				}
			}
			for _, g := range groups {
				Await(t, 30*time.Second, "the end of the silent member of "+g, func() error {
					if n := members(g); n != 0 {
						return fmt.Errorf("%d members", n)
					}
					return nil
				})
			}
		}
	}
	for _, m := range teams {
		m.shared(2, 2)
	}
	for _, way := range []struct {
		name string
		to   []int32
	}{{"there", []int32{theirs, ours}}, {"back", []int32{ours, theirs}}} {
		c.undisturbed(ctx, teams, way.name, move(way.name, way.to...))
		if t.Failed() {
			return
		}
		for _, m := range teams {
			if m.static {
				other := m.asked[0].Load()
				id, generation := m.members[0].GroupMetadata()
				had := m.of(1)
				m.members[1].Close()
				m.joins(1)
				m.shared(2, 2)
				if again, g := m.members[0].GroupMetadata(); m.asked[0].Load() != other || again != id || g != generation {
					t.Errorf("%s: the other member of %s is in generation %d, was in %d, when one came back", way.name, m.group, g, generation)
				}
				if has := m.of(1); !slices.Equal(has, had) {
					t.Errorf("%s: the static member of %s has %v and had %v", way.name, m.group, has, had)
				}
				continue
			}
			m.joins(2)
			m.shared(1, 1, 2)
			m.members[2].Close()
			m.members, m.asked = m.members[:2], m.asked[:2]
			m.shared(2, 2)
		}
		c.undisturbed(ctx, teams, "after "+way.name, func() {})
		if t.Failed() {
			return
		}
	}
	for _, m := range teams {
		m.members[1].Close()
		m.shared(4) // a static one when its session is over
		if len(m.two) > 0 {
			t.Errorf("%s: %v", m.group, m.two)
		}
	}
	c.sameLogs("__consumer_offsets")
	c.understood()
}

// of lists what the member has.
func (s *teamOf) of(member int) (parts []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.owns[member] {
		parts = append(parts, p)
	}
	slices.Sort(parts)
	return parts
}
