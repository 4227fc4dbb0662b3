package brokertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// right is what a request needs, and how it is refused to who lacks it.
type right struct {
	typ     kmsg.ACLResourceType
	name    string
	op      kmsg.ACLOperation
	refused *kerr.Error
}

// everyRight sends each request that needs several rights once as a principal that has them
// all, and once for each right as one that lacks just this.
func everyRight(t *testing.T, s *secured) {
	const id, plain, consumer = "payments", "plain-team", "consumer-team"
	write := right{kmsg.ACLResourceTypeTransactionalId, id, kmsg.ACLOperationWrite, kerr.TransactionalIDAuthorizationFailed}
	see := right{kmsg.ACLResourceTypeTransactionalId, id, kmsg.ACLOperationDescribe, kerr.TransactionalIDAuthorizationFailed}
	ofGroup := func(name string, op kmsg.ACLOperation) right {
		return right{kmsg.ACLResourceTypeGroup, name, op, kerr.GroupAuthorizationFailed}
	}
	ofTopic := func(op kmsg.ACLOperation) right {
		return right{kmsg.ACLResourceTypeTopic, "orders", op, kerr.TopicAuthorizationFailed}
	}
	ofCluster := func(op kmsg.ACLOperation) right {
		return right{kmsg.ACLResourceTypeCluster, "kafka-cluster", op, kerr.ClusterAuthorizationFailed}
	}

	// What they ask about is there: offsets of a plain group, a member of a consumer group.
	coordinator := map[string]int32{}
	byName := sample(t, 8, "orders", plain)
	byName.SetVersion(9) // later ones name topics by id
	for group, first := range map[string]kmsg.Request{plain: byName, consumer: sample(t, 68, "orders", consumer)} {
		if r, ok := first.(*kmsg.ConsumerGroupHeartbeatRequest); ok {
			r.MemberEpoch, r.InstanceID, r.SubscribedTopicRegex, r.Topics = 0, nil, nil, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}
		Await(t, 30*time.Second, "the group "+group, func() error {
			w := s.control(s.internal[0])
			defer w.Close()
			found := w.must(sample(t, 10, "", group)).(*kmsg.FindCoordinatorResponse).Coordinators[0]
			if found.ErrorCode != 0 {
				return kerr.ErrorForCode(found.ErrorCode)
			}
			coordinator[group] = found.NodeID
			c := s.control(s.internal[found.NodeID])
			defer c.Close()
			resp, err := c.ask(first)
			if err == nil && !slices.Equal(codes(resp), []int16{0}) {
				err = fmt.Errorf("%+v", resp)
			}
			return err
		})
	}
	addOld := sample(t, 24, "orders", id)
	addOld.SetVersion(3)
	start := sample(t, 22, "", "").(*kmsg.InitProducerIDRequest)
	start.TransactionalID = new(string)
	*start.TransactionalID = id
	find := sample(t, 10, "", id).(*kmsg.FindCoordinatorRequest)
	find.CoordinatorType = 1
	commit := sample(t, 28, "orders", id).(*kmsg.TxnOffsetCommitRequest)
	commit.Group = plain
	addOffsets := sample(t, 25, "", id).(*kmsg.AddOffsetsToTxnRequest)
	addOffsets.Group = plain

	for i, c := range []struct {
		name   string
		req    kmsg.Request
		group  string // whose coordinator is asked
		rights []right
	}{
		{"FindCoordinator", find, plain, []right{see}},
		{"InitProducerId", start, plain, []right{write}},
		{"AddPartitionsToTxn of a producer", addOld, plain, []right{write, ofTopic(kmsg.ACLOperationWrite)}},
		{"AddPartitionsToTxn of a broker", sample(t, 24, "orders", id), plain, []right{ofCluster(kmsg.ACLOperationClusterAction)}},
		{"AddOffsetsToTxn", addOffsets, plain, []right{write, ofGroup(plain, kmsg.ACLOperationRead)}},
		{"EndTxn", sample(t, 26, "", id), plain, []right{write}},
		{"WriteTxnMarkers of a broker", sample(t, 27, "orders", ""), plain, []right{ofCluster(kmsg.ACLOperationClusterAction)}},
		{"WriteTxnMarkers of an administrator", sample(t, 27, "orders", ""), plain, []right{ofCluster(kmsg.ACLOperationAlter)}},
		{"TxnOffsetCommit", commit, plain, []right{write, ofGroup(plain, kmsg.ACLOperationRead), ofTopic(kmsg.ACLOperationRead)}},
		{"DescribeProducers", sample(t, 61, "orders", ""), plain, []right{ofTopic(kmsg.ACLOperationRead)}},
		{"DescribeTransactions", sample(t, 65, "", id), plain, []right{see}},
		{"ConsumerGroupHeartbeat", sample(t, 68, "orders", consumer), consumer, []right{ofGroup(consumer, kmsg.ACLOperationRead), ofTopic(kmsg.ACLOperationDescribe)}},
		{"ConsumerGroupDescribe", sample(t, 69, "", consumer), consumer, []right{ofGroup(consumer, kmsg.ACLOperationDescribe), ofTopic(kmsg.ACLOperationDescribe)}},
		{"OffsetDelete", sample(t, 47, "orders", plain), plain, []right{ofGroup(plain, kmsg.ACLOperationDelete), ofTopic(kmsg.ACLOperationRead)}},
	} {
		for lacking := range len(c.rights) + 1 { // the last lacks none
			who := fmt.Sprintf("rights-%d-%d", i, lacking)
			for j, r := range c.rights {
				if j != lacking {
					s.allow(who, r.typ, r.name, r.op)
				}
			}
			w := dialWire(t, s.Brokers[coordinator[c.group]].Addr)
			w.login(s.token(who))
			resp, err := w.ask(c.req)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			got := codes(resp)
			if lacking < len(c.rights) {
				if want := c.rights[lacking].refused; !slices.Contains(got, want.Code) {
					t.Errorf("%s without the right to %v %v: %v, want %v", c.name, c.rights[lacking].op, c.rights[lacking].typ, got, want)
				}
				continue
			}
			for _, code := range got {
				switch err := kerr.ErrorForCode(code); err {
				case kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed:
					t.Errorf("%s with every right: %v", c.name, err)
				}
			}
			w.Close()
		}
	}
	transactionsSeen(t, s, id)
}

// transactionsSeen has a transaction open, and holds what is told of it against what the
// caller may Describe. The topic of offsets is nobody's to add.
func transactionsSeen(t *testing.T, s *secured, id string) {
	const txn, topic = kmsg.ACLResourceTypeTransactionalId, kmsg.ACLResourceTypeTopic
	s.allow("payer", txn, id, kmsg.ACLOperationWrite)
	s.allow("payer", topic, "*", kmsg.ACLOperationWrite)
	s.allow("onlooker", txn, id, kmsg.ACLOperationDescribe)
	var payer *rawConn
	var at int32
	var begun *kmsg.InitProducerIDResponse
	Await(t, 30*time.Second, "a producer id", func() error {
		find := sample(t, 10, "", id).(*kmsg.FindCoordinatorRequest)
		find.CoordinatorType = 1
		w := s.client("payer")
		defer w.Close()
		found := w.must(find).(*kmsg.FindCoordinatorResponse).Coordinators[0]
		if found.ErrorCode != 0 {
			return kerr.ErrorForCode(found.ErrorCode)
		}
		at = found.NodeID
		payer = dialWire(t, s.Brokers[at].Addr)
		payer.login(s.token("payer"))
		req := sample(t, 22, "", "").(*kmsg.InitProducerIDRequest)
		req.TransactionalID, req.TransactionTimeoutMillis = &id, 60_000
		begun = payer.must(req).(*kmsg.InitProducerIDResponse)
		return kerr.ErrorForCode(begun.ErrorCode)
	})
	add := func(name string) []int16 {
		req := sample(t, 24, name, id).(*kmsg.AddPartitionsToTxnRequest)
		req.SetVersion(3)
		req.ProducerID, req.ProducerEpoch = begun.ProducerID, begun.ProducerEpoch
		resp, err := payer.ask(req)
		if err != nil {
			t.Fatal(err)
		}
		return codes(resp)
	}
	for _, name := range []string{"__consumer_offsets", "__transaction_state"} {
		if got := add(name); !slices.Equal(got, []int16{0, kerr.TopicAuthorizationFailed.Code}) {
			t.Errorf("adding %s: %v", name, got)
		}
	}
	if got := add("orders"); !slices.Equal(got, []int16{0}) {
		t.Fatalf("adding the tenant's own topic: %v", got)
	}
	for who, want := range map[string]struct{ listed, topics int }{"mallory": {0, 0}, "onlooker": {1, 0}, "payer": {1, 1}} {
		w := dialWire(t, s.Brokers[at].Addr)
		w.login(s.token(who))
		listed := w.must(kmsg.NewPtrListTransactionsRequest()).(*kmsg.ListTransactionsResponse)
		described := w.must(sample(t, 65, "", id)).(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
		if len(listed.TransactionStates) != want.listed || len(described.Topics) != want.topics {
			t.Errorf("%s is told of %d transactions and %d topics, want %+v", who, len(listed.TransactionStates), len(described.Topics), want)
		}
	}
	end := sample(t, 26, "", id).(*kmsg.EndTxnRequest)
	end.ProducerID, end.ProducerEpoch, end.Commit = begun.ProducerID, begun.ProducerEpoch, false
	if got := codes(payer.must(end)); !slices.Equal(got, []int16{0}) {
		t.Errorf("ending: %v", got)
	}
}
