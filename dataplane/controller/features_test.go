package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

var able = coordination.Abilities{"f": {Min: 0, Max: 2}}

func TestRecordsAreOfBrokersThatLiveOrWillBeBack(t *testing.T) {
	have := map[int32]coordination.Abilities{1: able, 2: able, 3: {}, 4: able}
	used := map[int32]topicPart{1: part("t", 0), 3: part("t", 0), 5: part("t", 0), 6: part("t", 1), 7: part("t", 1)}
	up := func(id int32) bool { return id == 1 || id == 2 || id == 7 }
	next, changed := neededRecords(have, used, up, map[int32]coordination.Abilities{3: able, 6: able})
	want := map[int32]coordination.Abilities{
		1: able, // lives
		2: able, // lives, though it has no replica
		3: {},   // has replicas: what is written counts, not what is remembered
		// 4 is away for good.
		5: nil,  // has replicas and was never seen
		6: able, // is remembered
		// 7 lives: brokers write down what they see of it.
	}
	if !changed || !maps.EqualFunc(next, want, maps.Equal[coordination.Abilities, coordination.Abilities]) {
		t.Errorf("the records become %v, changed: %v; wanted %v", next, changed, want)
	}
	if again, changed := neededRecords(next, used, up, nil); changed {
		t.Errorf("they become %v once more", again)
	}
}

// recorded waits until there are records of these brokers only, and gives them.
func (c *cluster) recorded(what string, ids ...int32) (of map[int32]coordination.Abilities) {
	c.t.Helper()
	c.free(fmt.Sprintf("%s: records of %v", what, ids), func() bool {
		r, err := c.zk.FeatureRecords(c.ctx)
		must(c.t, err)
		of = r.Of
		return r.Bad == nil && slices.Equal(slices.Sorted(maps.Keys(of)), ids)
	})
	return of
}

func (c *cluster) record(of map[int32]coordination.Abilities) {
	c.t.Helper()
	r, err := c.zk.FeatureRecords(c.ctx)
	must(c.t, err)
	must(c.t, c.zk.WriteFeatureRecords(c.ctx, r, of, nil))
}

// passer registers a broker that has no process, and gives what ends it.
func (c *cluster) passer(id int32, can coordination.Abilities) (end func()) {
	c.t.Helper()
	b := coordination.Broker{ID: id, JMXPort: -1, Features: can, Endpoints: []coordination.Endpoint{
		{Listener: "INTERNAL", SecurityProtocol: "SASL_PLAINTEXT", Host: "127.0.0.1", Port: 10000 + id}}}
	epoch, err := c.zk.RegisterBroker(c.ctx, b)
	must(c.t, err)
	return func() { c.t.Helper(); must(c.t, c.zk.UnregisterBroker(c.ctx, id, epoch)) }
}

func TestRecordOfABrokerGoesWithItsLastReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	c.brokers[1].control()
	ctl := c.awaitController(1)
	end7, end8 := c.passer(7, nil), c.passer(8, able)
	c.record(map[int32]coordination.Abilities{1: able, 2: able, 7: nil, 8: able, 9: nil})
	c.create(ctl, "t", []int32{1, 7}, []int32{1, 8}, []int32{1, 7})
	c.create(ctl, "u", []int32{1, 8})
	end7()
	c.recorded("9 has no replicas", 1, 2, 7, 8)
	end8()
	c.move(ctl, part("t", 0), 1, 2)
	c.join(ctl, part("t", 0), 2)
	c.free("the first of two moved", func() bool { return len(c.listed(ctl)) == 0 })
	c.recorded("7 has a replica left", 1, 2, 7, 8)
	c.move(ctl, part("t", 2), 1, 2)
	c.join(ctl, part("t", 2), 2)
	if of := c.recorded("7 has none", 1, 2, 8); !maps.Equal(of[8], able) {
		t.Errorf("8 could %v, wanted %v", of[8], able)
	}
	// What those have who live their brokers write again, of which there are none here.
	_, err := c.zk.Set(c.ctx, coordination.FeaturesPath, []byte("nonsense"), -1)
	must(t, err)
	c.recorded("damaged by hand", 8)
	must(t, c.zk.Delete(c.ctx, coordination.FeaturesPath, -1))
	if of := c.recorded("removed by hand", 8); !maps.Equal(of[8], able) {
		t.Errorf("8 could %v, wanted %v", of[8], able)
	}
	for _, name := range []string{"t", "u"} { // as somebody might by hand: a deletion waits for 8
		if name == "u" {
			c.free("t gone", func() bool { return !slices.ContainsFunc(topicsOf(c, ctl), func(n string) bool { return n == "t" }) })
			c.recorded("8 has u", 8)
		}
		must(t, c.zk.RemoveTopic(c.ctx, ctl.term.Load().fence, name))
	}
	c.recorded("8 has nothing")
}

// topicsOf are those that the controller knows.
func topicsOf(c *cluster, ctl *Controller) (names []string) {
	c.t.Helper()
	must(c.t, ctl.call(c.ctx, func(t *term) error { names = slices.Sorted(maps.Keys(t.st.topics)); return nil }))
	return names
}

// A broker that was away before any of ours was there to see it counts, before anybody is told
// by the controller what there is; who is away for good does not.
func TestControllerRecordsBeforeItsFirstWord(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	f, _, _, err := c.zk.ElectController(c.ctx, 9)
	must(t, err)
	byHand := func(f coordination.Fence, name string, replicas ...int32) {
		t.Helper()
		must(t, c.zk.CreateTopic(c.ctx, f, name, coordination.TopicAssignment{ID: coordination.NewTopicID(), Partitions: map[int32][]int32{0: replicas}}, nil))
	}
	byHand(f, "t", 1, 9)
	c.record(map[int32]coordination.Abilities{5: nil})
	must(t, c.zk.ResignController(c.ctx, f))
	told := make(chan []int32, 1)
	c.brokers[1].gate = func(_ context.Context, req kmsg.Request) error {
		r, err := c.zk.FeatureRecords(c.ctx)
		if err != nil {
			return err
		}
		select {
		case told <- slices.Sorted(maps.Keys(r.Of)):
		default:
		}
		return nil
	}
	c.brokers[1].control()
	ctl := c.awaitController(1)
	select {
	case ids := <-told:
		if !slices.Equal(ids, []int32{9}) {
			t.Errorf("at the controller's first word there were records of %v", ids)
		}
	case <-c.ctx.Done():
		t.Fatal("the controller said nothing")
	}
	// Its replica may be made when the controller thinks that it is gone.
	byHand(ctl.term.Load().fence, "late", 1, 6)
	c.recorded("new partitions", 6, 9)
}
