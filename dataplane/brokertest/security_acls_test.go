package brokertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// withoutACLs sends every request that the broker serves as a principal that
// may nothing.
func withoutACLs(t *testing.T, s *secured) {
	const topic, group, cluster, txn, none = 29, 30, 31, 53, 0
	want := map[int16]int16{
		0: topic, 1: topic, 2: topic, 3: topic, 4: cluster, 5: cluster, 6: cluster, 7: cluster, 8: group, 9: group, 10: group, 11: group, 12: group,
		13: group, 14: group, 15: group, 16: none, 18: none, 19: topic, 20: topic, 21: topic, 22: cluster, 23: topic,
		24: cluster, 25: txn, 26: txn, 27: cluster, 28: txn, 29: cluster, 30: cluster, 31: cluster,
		32: topic, 33: topic, 34: cluster, 35: cluster, 37: topic, 42: group, 43: cluster, 44: topic, 45: cluster, 46: cluster,
		47: group, 48: cluster, 49: cluster, 56: cluster, 60: none, 61: topic, 65: txn, 66: none, 67: cluster, 68: group, 69: group, 75: topic,
	}
	w := s.client("mallory")
	for _, a := range protocol.APIs() {
		if a.Has(protocol.Sasl) {
			continue
		}
		code, known := want[a.Key]
		if !known {
			t.Errorf("%s: this test does not know what to expect", a.Name)
		}
		for _, name := range []string{"orders", "absent"} { // whether it exists is no business of mallory's
			resp, err := w.ask(sample(t, a.Key, name, "team"))
			if err != nil {
				t.Fatalf("%s: %v", a.Name, err)
			}
			if got := codes(resp); len(got) == 0 || got[len(got)-1] != code || len(got) > 2 || len(got) == 2 && got[0] != 0 {
				t.Errorf("%s of %s: error codes %v, want %d", a.Name, name, got, code)
			}
		}
	}
	t.Run("a fetch as if it were a follower's", func(t *testing.T) {
		for _, session := range []int32{-1, 0} {
			req := fetchFrom("orders", 0, 1<<20)
			req.ReplicaID, req.SessionEpoch = 1, session
			resp, err := s.client("alice").ask(req) // who may even read the topic
			if err != nil {
				t.Fatal(err)
			}
			r := resp.(*kmsg.FetchResponse)
			if r.ErrorCode != 0 || len(r.Topics) != 1 || r.Topics[0].Partitions[0].ErrorCode != topic || len(r.Topics[0].Partitions[0].RecordBatches) > 0 {
				t.Errorf("%+v", r)
			}
		}
	})
	t.Run("broker settings", func(t *testing.T) {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Resources = append(req.Resources, configResource(kmsg.ConfigResourceTypeBroker, "0"))
		for _, who := range []string{"mallory", "greedy"} {
			r := s.client(who).must(req).(*kmsg.DescribeConfigsResponse).Resources[0]
			if r.ErrorCode != cluster || len(r.Configs) > 0 {
				t.Errorf("%s is told %d settings, %v", who, len(r.Configs), kerr.ErrorForCode(r.ErrorCode))
			}
		}
		r := s.control(s.internal[0]).must(req).(*kmsg.DescribeConfigsResponse).Resources[0]
		if r.ErrorCode != 0 || len(r.Configs) == 0 {
			t.Fatal("the control plane may not read a broker's settings")
		}
		for _, c := range r.Configs { // not even the control plane is told secrets
			if c.Value != nil && (strings.Contains(*c.Value, "-secret")) {
				t.Errorf("%s gives a secret away", c.Name)
			}
		}
	})
	t.Run("broker settings and the level of the log", func(t *testing.T) {
		for _, r := range []kmsg.DescribeConfigsRequestResource{
			configResource(kmsg.ConfigResourceTypeBroker, "0"), configResource(kmsg.ConfigResourceTypeBroker, ""), configResource(kmsg.ConfigResourceTypeBrokerLogger, "0"),
		} {
			describe := kmsg.NewPtrDescribeConfigsRequest()
			describe.Resources = append(describe.Resources, r)
			for _, req := range []kmsg.Request{
				describe, alterOf(r.ResourceType, r.ResourceName, false), alterOf(r.ResourceType, r.ResourceName, true, "message.max.bytes", "7"),
				incrementalOf(r.ResourceType, r.ResourceName, false, incremental{opSet, "root", "INFO"}),
			} {
				if got := codes(w.must(req)); len(got) != 1 || got[0] != cluster {
					t.Errorf("%T of %v %q: error codes %v, want %d", req, r.ResourceType, r.ResourceName, got, cluster)
				}
			}
		}
	})
	t.Run("all topics and groups", func(t *testing.T) {
		req := kmsg.NewPtrMetadataRequest()
		if r := w.must(req).(*kmsg.MetadataResponse); len(r.Topics) != 0 || len(r.Brokers) != 2 {
			t.Errorf("%d topics, %d brokers", len(r.Topics), len(r.Brokers))
		}
		if r := w.must(kmsg.NewPtrListGroupsRequest()).(*kmsg.ListGroupsResponse); len(r.Groups) != 0 {
			t.Errorf("groups %+v", r.Groups)
		}
	})
	t.Run("acks=0 has no reply but the end", func(t *testing.T) {
		c := s.client("mallory")
		req := produceOf("orders", 1, batch(t, "x"))
		req.Acks = 0
		if _, err := c.ask(req); !errors.Is(err, errClosed) {
			t.Errorf("%v", err)
		}
	})
	// Nothing of all that has changed anything: the topic is there as it was.
	r := s.client("alice").must(metadataOf("orders")).(*kmsg.MetadataResponse)
	if p := r.Topics[0].Partitions; r.Topics[0].ErrorCode != 0 || len(p) != 1 || p[0].Leader < 0 || len(p[0].ISR) != 2 {
		t.Errorf("the topic afterwards: %+v", r.Topics[0])
	}
}

// internalTopics lets a principal with every right on every topic and group of
// the cluster reach for the service's own: offsets, and what is billed.
func internalTopics(t *testing.T, s *secured) {
	w := s.client("greedy")
	w.must(sample(t, 10, "", "team")) // makes the offsets topic
	for _, n := range s.Brokers {     // something to be billed, at whoever leads
		each := dialWire(t, n.Addr)
		each.login(s.token("greedy"))
		each.must(produceOf("orders", 1, batch(t, "something")))
	}
	Await(t, 20*time.Second, "the usage topic", func() error {
		r := w.must(metadataOf("__penstock_usage", "__consumer_offsets")).(*kmsg.MetadataResponse)
		if got := codes(r); !slices.Equal(got, []int16{0}) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	for _, topic := range []string{"__penstock_usage", "__consumer_offsets"} {
		for key, want := range map[int16]int16{
			0: kerr.InvalidTopicException.Code, 21: kerr.InvalidTopicException.Code,
			20: kerr.TopicAuthorizationFailed.Code, 33: kerr.TopicAuthorizationFailed.Code,
			37: kerr.TopicAuthorizationFailed.Code, 44: kerr.TopicAuthorizationFailed.Code,
		} {
			resp, err := w.ask(sample(t, key, topic, "team"))
			if err != nil {
				t.Fatal(err)
			}
			if got := codes(resp); got[len(got)-1] != want {
				t.Errorf("%T of %s: %v, want %d", resp, topic, got, want)
			}
		}
	}
	lookup := metadataOf("__transaction_state")
	lookup.AllowAutoTopicCreation = true
	if got := codes(w.must(lookup)); got[len(got)-1] != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("looking at a topic of transactions: %v", got)
	}
	for _, topic := range []string{"__penstock_usage", "__consumer_offsets", "__transaction_state"} {
		req := sample(t, 19, "", "").(*kmsg.CreateTopicsRequest)
		req.Topics[0].Topic = topic
		if got := codes(w.must(req)); got[len(got)-1] != kerr.TopicAuthorizationFailed.Code {
			t.Errorf("creating %s: %v", topic, got)
		}
	}
	byID := sample(t, 20, "", "").(*kmsg.DeleteTopicsRequest)
	r := w.must(metadataOf("__penstock_usage")).(*kmsg.MetadataResponse)
	byID.Topics[0].Topic, byID.Topics[0].TopicID = nil, r.Topics[0].TopicID
	if got := codes(w.must(byID)); got[len(got)-1] != kerr.TopicAuthorizationFailed.Code {
		t.Errorf("deleting by id: %v", got)
	}
	// The same on the tenant's own topics is its right.
	if got := codes(w.must(sample(t, 44, "orders", ""))); !slices.Equal(got, []int16{0}) {
		t.Errorf("altering the tenant's own topic: %v", got)
	}
}
