package group

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// consumers is an env whose topics are a (4 partitions) and b (2).
type consumers struct {
	*env
	topics *fakeTopics
}

func runConsumers(t *testing.T, change func(*Config), f func(*consumers)) {
	t.Helper()
	cs := &consumers{topics: newFakeTopics(map[string]int32{"a": 4, "b": 2})}
	cfg := Config{ConsumerProtocol: true, Topics: func() Topics { return cs.topics }}
	if change != nil {
		change(&cfg)
	}
	run(t, cfg, func(e *env) {
		cs.env = e
		f(cs)
	})
}

func beatOf(member string, epoch int32, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch = 1, "g", member, epoch
	if epoch == 0 {
		r.RebalanceTimeoutMillis, r.SubscribedTopicNames, r.Topics = 20_000, append([]string{}, topics...), []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	return r
}

func (cs *consumers) beatAsync(r *kmsg.ConsumerGroupHeartbeatRequest) *future[kmsg.ConsumerGroupHeartbeatResponse] {
	f := newFuture[kmsg.ConsumerGroupHeartbeatResponse](cs.t)
	cs.c.ConsumerHeartbeat(ClientInfo{"client", "/h"}, func(topic string) bool { return topic != "secret" }, r, f.done)
	return f
}

func (cs *consumers) beat(r *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	cs.t.Helper()
	return cs.beatAsync(r).wait()
}

// joins lets a member join and returns its epoch.
func (cs *consumers) joins(member string, topics ...string) *kmsg.ConsumerGroupHeartbeatResponse {
	cs.t.Helper()
	resp := cs.beat(beatOf(member, 0, topics...))
	wantCode(cs.t, resp.ErrorCode, nil)
	return resp
}

// owning says in the request what the member has.
func owning(r *kmsg.ConsumerGroupHeartbeatRequest, topic string, ps ...int32) *kmsg.ConsumerGroupHeartbeatRequest {
	r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: fakeID(topic, 0), Partitions: ps}}
	return r
}

// shown is an assignment as text.
func (cs *consumers) shown(a *kmsg.ConsumerGroupHeartbeatResponseAssignment) string {
	if a == nil {
		return "same"
	}
	var parts []string
	for _, t := range a.Topics {
		name, _ := cs.topics.Name(protocol.UUID(t.TopicID))
		parts = append(parts, fmt.Sprint(name, t.Partitions))
	}
	return strings.Join(parts, " ")
}

func (cs *consumers) describeIt() kmsg.ConsumerGroupDescribeResponseGroup {
	r := kmsg.NewPtrConsumerGroupDescribeRequest()
	r.Groups = []string{"g"}
	f := newFuture[kmsg.ConsumerGroupDescribeResponse](cs.t)
	cs.c.DescribeConsumer(r, f.done)
	return f.poll().Groups[0]
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestConsumerMemberIsFencedAfterASilentSession(t *testing.T) {
	runConsumers(t, nil, func(cs *consumers) {
		first := cs.joins("m1", "a")
		time.Sleep(44 * time.Second)
		wantCode(t, cs.beat(beatOf("m1", first.MemberEpoch)).ErrorCode, nil)
		time.Sleep(44 * time.Second)
		wantCode(t, cs.beat(beatOf("m1", first.MemberEpoch)).ErrorCode, nil)
		time.Sleep(46 * time.Second)
		wantCode(t, cs.beat(beatOf("m1", first.MemberEpoch)).ErrorCode, kerr.UnknownMemberID)
		if d := cs.describeIt(); d.State != "Empty" || d.Epoch != first.MemberEpoch+1 {
			t.Errorf("%+v", d)
		}
	})
}

func TestMemberThatDoesNotGiveUpInTimeIsFenced(t *testing.T) {
	runConsumers(t, nil, func(cs *consumers) {
		one := cs.joins("m1", "a")
		two := cs.joins("m2", "a")
		if cs.shown(two.Assignment) != "" {
			t.Errorf("m2 has %s while m1 has all", cs.shown(two.Assignment))
		}
		one = cs.beat(owning(beatOf("m1", one.MemberEpoch), "a", 0, 1, 2, 3))
		if cs.shown(one.Assignment) != "a[0 1]" || one.MemberEpoch != 1 {
			t.Fatalf("epoch %d, %s", one.MemberEpoch, cs.shown(one.Assignment))
		}
		for range 3 { // it beats and does not give up
			time.Sleep(5 * time.Second)
			wantCode(t, cs.beat(owning(beatOf("m1", 1), "a", 0, 1, 2, 3)).ErrorCode, nil)
			two = cs.beat(beatOf("m2", two.MemberEpoch))
			if s := cs.shown(two.Assignment); s != "same" {
				t.Errorf("m2 has %s", s)
			}
		}
		time.Sleep(6 * time.Second)
		wantCode(t, cs.beat(owning(beatOf("m1", 1), "a", 0, 1, 2, 3)).ErrorCode, kerr.UnknownMemberID)
		two = cs.beat(beatOf("m2", two.MemberEpoch))
		if s := cs.shown(two.Assignment); s != "a[0 1 2 3]" {
			t.Errorf("m2 has %s", s)
		}
	})
}

func TestAnswersWaitForTheLogAndFailuresAreTakenBack(t *testing.T) {
	runConsumers(t, nil, func(cs *consumers) {
		one := cs.joins("m1", "a")
		cs.log.set(func(l *memLog) { l.hold = true })
		two := cs.beatAsync(beatOf("m2", 0, "a"))
		two.mustWait()
		// This one changes nothing, and yet says what is not stored.
		same := cs.beatAsync(beatOf("m1", one.MemberEpoch))
		same.mustWait()
		cs.log.release(errors.New("disk on fire"))
		wantCode(t, two.wait().ErrorCode, kerr.UnknownServerError)
		if same.wait().ErrorCode == 0 {
			t.Error("an answer rests on what was taken back")
		}
		d := cs.describeIt()
		if len(d.Members) != 1 || d.Epoch != 1 || d.State != "Stable" {
			t.Fatalf("%+v", d)
		}
		// The log has the refused batch; the next one puts it right.
		cs.joins("m3", "b")
		cs.move()
		d = cs.describeIt()
		if len(d.Members) != 2 || d.Members[0].MemberID != "m1" || d.Members[1].MemberID != "m3" {
			t.Errorf("%+v", d)
		}
		wantCode(t, cs.beat(beatOf("m1", one.MemberEpoch)).ErrorCode, nil)
	})
}

func TestConsumerGroupIsLoadedAsItWas(t *testing.T) {
	runConsumers(t, nil, func(cs *consumers) {
		r := beatOf("m1", 0, "a")
		r.InstanceID, r.RackID, r.ServerAssignor = new("i1"), new("rack"), new("range")
		wantCode(t, cs.beat(r).ErrorCode, nil)
		regex := beatOf("m2", 0)
		regex.SubscribedTopicNames, regex.SubscribedTopicRegex = nil, new("[ab]")
		wantCode(t, cs.beat(regex).ErrorCode, nil)
		cs.beat(owning(beatOf("m1", 1), "a", 0, 1, 2, 3))
		before := asJSON(cs.describeIt())
		cs.move()
		if after := asJSON(cs.describeIt()); after != before {
			t.Errorf("it was\n%s\nand is\n%s", before, after)
		}
		g, _ := cs.c.find("g", false)
		if len(g.consumer.unsure) > 0 || len(g.consumer.regexes["[ab]"].topics) != 2 {
			t.Errorf("%+v", g.consumer)
		}
		time.Sleep(19 * time.Second) // the rebalance timeout of m1 starts anew
		wantCode(t, cs.beat(owning(beatOf("m1", 1), "a", 0, 1)).ErrorCode, nil)
		time.Sleep(46 * time.Second)
		if d := cs.describeIt(); d.State != "Empty" {
			t.Errorf("%+v", d)
		}
	})
}

func TestPartitionMetadataOfOldIsRemovedWithTheNextEpoch(t *testing.T) {
	runConsumers(t, nil, func(cs *consumers) {
		one := cs.joins("m1", "a")
		key := consumerKey{kind: kindPartitions, group: "g"}
		cs.log.set(func(l *memLog) {
			l.parts[0] = append(l.parts[0], coordinator.Logged{Record: key.record([]byte{0, 0, 1, 0}), Producer: coordinator.NoTransaction})
		})
		cs.move()
		wantCode(t, cs.beat(beatOf("m1", one.MemberEpoch)).ErrorCode, nil)
		cs.joins("m2", "a")
		if _, ok := cs.log.live(0)[string(key.bytes())]; ok {
			t.Error("it is still there")
		}
	})
}

func TestExpressionsFollowTheTopicsAndTheRightsToThem(t *testing.T) {
	runConsumers(t, nil, func(cs *consumers) {
		cs.topics = cs.topics.with("secret", 3)
		r := beatOf("m1", 0)
		r.SubscribedTopicNames, r.SubscribedTopicRegex = nil, new("[a-z]+")
		one := cs.beat(r)
		if s := cs.shown(one.Assignment); s != "a[0 1 2 3] b[0 1]" {
			t.Fatalf("%s", s)
		}
		cs.topics = cs.topics.with("c", 1).without("b")
		time.Sleep(11 * time.Second)
		one = cs.beat(beatOf("m1", one.MemberEpoch)) // has them resolved
		synctest.Wait()
		if s := cs.shown(one.Assignment); s != "a[0 1 2 3]" { // b has to be given up first
			t.Fatalf("%s", s)
		}
		one = cs.beat(owning(beatOf("m1", one.MemberEpoch), "a", 0, 1, 2, 3))
		if s := cs.shown(one.Assignment); s != "a[0 1 2 3] c[0]" {
			t.Fatalf("%s", s)
		}
		for _, bad := range []string{"(", strings.Repeat("a", maxRegexBytes+1), "((a{100}){100}){100}"} {
			r := beatOf("m2", 0)
			r.SubscribedTopicRegex = &bad
			wantCode(t, cs.beat(r).ErrorCode, kerr.InvalidRegularExpression)
		}
	})
}

func TestTargetsAreWorkedOutOnceInAnInterval(t *testing.T) {
	runConsumers(t, func(c *Config) { c.ConsumerAssignmentInterval = time.Second }, func(cs *consumers) {
		cs.joins("m1", "a")
		for i := range 10 {
			cs.joins(fmt.Sprint("n", i), "a")
		}
		if d := cs.describeIt(); d.Epoch != 11 || d.AssignmentEpoch != 1 || d.State != "Assigning" {
			t.Fatalf("%+v", d)
		}
		time.Sleep(time.Second) // without a heartbeat
		if d := cs.describeIt(); d.AssignmentEpoch != 11 || d.State != "Reconciling" {
			t.Errorf("%+v", d)
		}
	})
}

func TestConsumerGroupIsFull(t *testing.T) {
	runConsumers(t, func(c *Config) { c.ConsumerMaxSize = 1 }, func(cs *consumers) {
		one := cs.joins("m1", "a")
		wantCode(t, cs.beat(beatOf("m2", 0, "a")).ErrorCode, kerr.GroupMaxSizeReached)
		wantCode(t, cs.beat(beatOf("m1", one.MemberEpoch)).ErrorCode, nil)
	})
}

func TestConsumerProtocolCanBeSwitchedOff(t *testing.T) {
	runConsumers(t, func(c *Config) { c.ConsumerProtocol = false }, func(cs *consumers) {
		wantCode(t, cs.beat(beatOf("m1", 0, "a")).ErrorCode, kerr.UnsupportedVersion)
	})
}

func TestLostConsumerGroupAnswersWhoWaits(t *testing.T) {
	runConsumers(t, nil, func(cs *consumers) {
		cs.joins("m1", "a")
		cs.log.set(func(l *memLog) { l.hold = true })
		two := cs.beatAsync(beatOf("m2", 0, "a"))
		synctest.Wait()
		cs.c.OnResign(0, 5)
		wantCode(t, two.poll().ErrorCode, kerr.NotCoordinator)
		cs.log.release(kerr.NotLeaderForPartition)
		wantCode(t, cs.beat(beatOf("m1", 1)).ErrorCode, kerr.NotCoordinator)
	})
}

func TestOffsetsOfConsumerGroupsExpire(t *testing.T) {
	runConsumers(t, func(c *Config) { c.OffsetsRetention, c.OffsetsCheckInterval = time.Hour, time.Minute }, func(cs *consumers) {
		one := cs.joins("m1", "a")
		for _, topic := range []string{"a", "b"} {
			r := commitReq("m1", one.MemberEpoch, topic, 0, 5)
			r.Version = 9
			wantCode(t, cs.commitAsync(r).wait().Topics[0].Partitions[0].ErrorCode, nil)
		}
		for range 100 {
			time.Sleep(40 * time.Second)
			wantCode(t, cs.beat(beatOf("m1", one.MemberEpoch)).ErrorCode, nil)
		}
		if a, b := cs.committed("a", 0), cs.committed("b", 0); a != 5 || b != -1 {
			t.Errorf("a at %d, b, which nobody subscribes to, at %d", a, b)
		}
		wantCode(t, cs.beat(beatOf("m1", -1)).ErrorCode, nil)
		time.Sleep(2 * time.Hour)
		if live := cs.log.live(0); len(live) > 0 {
			t.Errorf("%d records of a group that is gone", len(live))
		}
		if g, _ := cs.c.find("g", false); g != nil {
			t.Errorf("the group is still there: %+v", g.consumer)
		}
	})
}

func TestMigrationPolicies(t *testing.T) {
	for policy, want := range map[MigrationPolicy][2]bool{
		MigrateBidirectional: {true, true}, MigrateUpgrade: {true, false}, MigrateDowngrade: {false, true}, MigrateDisabled: {false, false},
	} {
		runConsumers(t, func(c *Config) { c.Migration = policy }, func(cs *consumers) {
			md := kmsg.NewConsumerMemberMetadata()
			md.Topics = []string{"a"}
			_, generation := cs.stable(1, func(r *kmsg.JoinGroupRequest) {
				r.Protocols[0].Metadata = md.AppendTo(nil)
				r.InstanceID = nil
			})
			g, _ := cs.c.find("g", false)
			g.members[g.leader].assignment = nil // "a-..." of the helper is none
			resp := cs.beat(beatOf("m1", 0, "a"))
			if up := resp.ErrorCode == 0; up != want[0] {
				t.Fatalf("policy %d: %v", policy, kerr.ErrorForCode(resp.ErrorCode))
			}
			if !want[0] {
				wantCode(t, resp.ErrorCode, kerr.GroupIDNotFound)
				return
			}
			if resp.MemberEpoch <= generation {
				t.Errorf("epoch %d after generation %d", resp.MemberEpoch, generation)
			}
			wantCode(t, cs.beat(beatOf("m1", -1)).ErrorCode, nil)
			if down := g.consumer == nil; down != want[1] {
				t.Errorf("policy %d: downgraded %v", policy, down)
			}
		})
	}
}
