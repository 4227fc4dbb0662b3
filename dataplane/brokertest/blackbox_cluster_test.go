package brokertest

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// clusterSettings are those of the three brokers of either make. Leaders stay where a case has put them: the controller that comes after one
// that was away would bring them back.
var clusterSettings = []string{"group.max.size=2", "group.consumer.max.size=2", "default.replication.factor=3", "num.partitions=4", "auto.leader.rebalance.enable=false"}

// TestBlackBoxCluster is the part of the black-box suite that takes more than one broker: leaders that move, coordinators
// elsewhere, replicas that are away.
func TestBlackBoxCluster(t *testing.T) {
	c := Start(t, Options{Brokers: 3, Settings: clusterSettings})
	tr := &trio{addrs: map[int32]string{}, pids: map[int32]func() int{}}
	for _, n := range c.Brokers {
		tr.ids = append(tr.ids, n.ID)
		tr.addrs[n.ID], tr.pids[n.ID] = n.Addr, n.PID
	}
	runBlackBoxCluster(t, tr)
}

// trio is three brokers under test.
type trio struct {
	target
	ids   []int32
	addrs map[int32]string
	pids  map[int32]func() int
	cl    *kgo.Client // for what is not under test
}

func runBlackBoxCluster(t *testing.T, tr *trio) {
	tr.run = fmt.Sprintf("%x", time.Now().UnixNano()&0xffffffff)
	tr.addr = tr.addrs[tr.ids[0]]
	var seeds []string
	for _, id := range tr.ids {
		seeds = append(seeds, tr.addrs[id])
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	tr.cl = cl
	for _, c := range clusterCases { // one after the other: some take brokers away
		t.Run(c.name, func(t *testing.T) { c.run(t, tr) })
	}
}

// at dials one of the brokers.
func (tr *trio) at(t *testing.T, id int32) *wire {
	t.Helper()
	w := (&target{addr: tr.addrs[id]}).dial(t)
	_ = w.SetDeadline(time.Now().Add(5 * time.Minute))
	return w
}

// away stops the broker's process until the function that it returns is called, or the test ends.
func (tr *trio) away(t *testing.T, id int32) (back func()) {
	t.Helper()
	pid := tr.pids[id]()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	back = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(back)
	awaitStopped(t, pid)
	return back
}

// topicOn makes a topic of one partition with these replicas, the first of which leads.
func (tr *trio) topicOn(t *testing.T, replicas []int32, configs map[string]string) madeTopic {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = tr.name("topic"), -1, -1
	rt.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: replicas}}
	for k, v := range configs {
		rt.Configs = append(rt.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: &v})
	}
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 30_000
	resp, err := req.RequestWith(context.Background(), tr.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	topic := madeTopic{rt.Topic, resp.Topics[0].TopicID}
	tr.awaitReplicas(t, topic, replicas)
	return topic
}

// awaitReplicas waits until these are the replicas, all in sync, and the first leads, and knows it. It returns the leader epoch.
func (tr *trio) awaitReplicas(t *testing.T, topic madeTopic, replicas []int32) (epoch int32) {
	t.Helper()
	w := tr.at(t, replicas[0])
	Await(t, time.Minute, "the leader of "+topic.name, func() error {
		p := ask[*kmsg.MetadataResponse](w, metadataFor(12, &topic.name)).Topics[0].Partitions
		if len(p) != 1 || p[0].Leader != replicas[0] || !slices.Equal(p[0].Replicas, replicas) || len(p[0].ISR) != len(replicas) {
			return fmt.Errorf("%+v", p)
		}
		epoch = p[0].LeaderEpoch
		for _, id := range replicas { // all know the epoch
			req := offsetsOf(6, topic.name, 0, -1)
			req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
			code := ask[*kmsg.ListOffsetsResponse](tr.at(t, id), req).Topics[0].Partitions[0].ErrorCode
			if err := kerr.ErrorForCode(code); err != nil && (id == replicas[0] || err != kerr.NotLeaderForPartition) {
				return fmt.Errorf("broker %d: %w", id, err)
			}
		}
		return nil
	})
	return epoch
}

// move gives the topic's partition other replicas and waits until it has them.
func (tr *trio) move(t *testing.T, topic madeTopic, replicas ...int32) (epoch int32) {
	t.Helper()
	Await(t, time.Minute, "the reassignment", func() error {
		var req kadm.AlterPartitionAssignmentsReq
		req.Assign(topic.name, 0, replicas)
		resp, err := kadm.NewClient(tr.cl).AlterPartitionAssignments(context.Background(), req)
		if err == nil {
			err = resp.Error()
		}
		return err
	})
	Await(t, time.Minute, "the end of the reassignment", func() error {
		resp, err := kadm.NewClient(tr.cl).ListPartitionReassignments(context.Background(), nil)
		if err == nil && len(resp) > 0 {
			err = fmt.Errorf("%v", resp.Sorted())
		}
		return err
	})
	return tr.awaitReplicas(t, topic, replicas)
}

// coordinatorOf is the broker that coordinates the group (0) or the transactional id (1).
func (tr *trio) coordinatorOf(t *testing.T, kind int8, key string) (id int32) {
	t.Helper()
	w := tr.at(t, tr.ids[0])
	Await(t, time.Minute, "the coordinator of "+key, func() error {
		req := at(kmsg.NewPtrFindCoordinatorRequest(), 3)
		req.CoordinatorType, req.CoordinatorKey = kind, key
		r := ask[*kmsg.FindCoordinatorResponse](w, req)
		id = r.NodeID
		return kerr.ErrorForCode(r.ErrorCode)
	})
	return id
}

// txnAt is a producer, and its connection to the coordinator of its id, which is not the broker that is to be avoided.
func (tr *trio) txnAt(t *testing.T, not int32) *txnProducer {
	t.Helper()
	for {
		name := tr.name("txn")
		id := tr.coordinatorOf(t, 1, name)
		if id == not {
			continue
		}
		p := &txnProducer{wire: tr.at(t, id), id: name}
		p.begin()
		return p
	}
}

// groupAt is a group, and a connection to its coordinator, which is not the broker that is to be avoided.
func (tr *trio) groupAt(t *testing.T, not int32) (string, *wire) {
	t.Helper()
	for {
		name := tr.name("group")
		if id := tr.coordinatorOf(t, 0, name); id != not {
			there := &target{addr: tr.addrs[id]}
			return name, there.coordinator(t, name)
		}
	}
}

type clusterCase struct {
	name string
	run  func(*testing.T, *trio)
}

// epochAPI is a request that says which leader epoch its client knows of, since version first.
type epochAPI struct {
	name        string
	first, last int16
	ask         func(w *wire, version int16, topic madeTopic, epoch int32) int16
}

var epochAPIs = []epochAPI{
	{"Fetch", 9, 17, func(w *wire, v int16, topic madeTopic, epoch int32) int16 {
		req := at(fetchOf(topic.name, 0, 0), v)
		req.Topics[0].TopicID, req.Topics[0].Partitions[0].CurrentLeaderEpoch = topic.id, epoch
		return ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0].ErrorCode
	}},
	{"ListOffsets", 4, 10, func(w *wire, v int16, topic madeTopic, epoch int32) int16 {
		req := offsetsOf(v, topic.name, 0, -1)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		return ask[*kmsg.ListOffsetsResponse](w, req).Topics[0].Partitions[0].ErrorCode
	}},
	{"OffsetForLeaderEpoch", 2, 4, func(w *wire, v int16, topic madeTopic, epoch int32) int16 {
		return endOfEpoch(w, v, topic.name, epoch, 0).ErrorCode
	}},
}

// endOfEpoch asks for the end of an epoch, in partition 0.
func endOfEpoch(w *wire, version int16, topic string, current, epoch int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	w.t.Helper()
	req := at(kmsg.NewPtrOffsetForLeaderEpochRequest(), version)
	req.ReplicaID = -1
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.CurrentLeaderEpoch, p.LeaderEpoch = current, epoch
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.OffsetForLeaderEpochResponse](w, req).Topics[0].Partitions[0]
}

var clusterCases = []clusterCase{
	{"leader epochs/of the past and the future, at the leader, a follower and elsewhere", func(t *testing.T, tr *trio) {
		a, b, c := tr.ids[0], tr.ids[1], tr.ids[2]
		topic := tr.topicOn(t, []int32{a}, nil)
		mustProduce(tr.at(t, a), topic.name, batch(t, "1", "2"), 0)
		tr.move(t, topic, b)
		epoch := tr.move(t, topic, b, a)
		leader, follower, other := tr.at(t, b), tr.at(t, a), tr.at(t, c)
		mustProduce(leader, topic.name, batch(t, "3", "4"), 2)
		if epoch < 1 {
			t.Fatalf("leader epoch %d after the leader has moved", epoch)
		}
		table := func() (wrong []string) {
			f := func(what string, code int16, want *kerr.Error) {
				if got := kerr.ErrorForCode(code); (got == nil) != (want == nil) || want != nil && want.Code != code {
					wrong = append(wrong, fmt.Sprintf("%s: %v, want %v", what, got, want))
				}
			}
			sent := func(what string, id, at, named int32) {
				if id != b || at != epoch || named != b { // KIP-951
					wrong = append(wrong, fmt.Sprintf("%s: sent to %d in epoch %d, and %d is named; want %d in epoch %d", what, id, at, named, b, epoch))
				}
			}
			for _, api := range epochAPIs {
				for v := api.first; v <= api.last; v++ {
					for at, want := range map[int32]*kerr.Error{epoch - 1: kerr.FencedLeaderEpoch, epoch: nil, -1: nil, epoch + 1: kerr.UnknownLeaderEpoch} {
						f(fmt.Sprintf("%s v%d at the leader, epoch %d of %d", api.name, v, at, epoch), api.ask(leader, v, topic, at), want)
						if want == nil && (api.name != "Fetch" || v < 11) { // since then consumers may fetch from followers (KIP-392)
							want = kerr.NotLeaderForPartition
						}
						f(fmt.Sprintf("%s v%d at a follower, epoch %d of %d", api.name, v, at, epoch), api.ask(follower, v, topic, at), want)
						f(fmt.Sprintf("%s v%d elsewhere, epoch %d of %d", api.name, v, at, epoch), api.ask(other, v, topic, at), kerr.NotLeaderForPartition)
					}
				}
			}
			for id, w := range map[int32]*wire{a: follower, c: other} {
				for v := int16(3); v < 13; v++ {
					resp := ask[*kmsg.ProduceResponse](w, at(produceOf(topic.name, -1, batch(t, "x")), v))
					p, what := resp.Topics[0].Partitions[0], fmt.Sprintf("Produce v%d at broker %d", v, id)
					f(what, p.ErrorCode, kerr.NotLeaderForPartition)
					if v >= 10 && len(resp.Brokers) == 1 {
						sent(what, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch, resp.Brokers[0].NodeID)
					} else if v >= 10 {
						wrong = append(wrong, fmt.Sprintf("%s: %d brokers are named", what, len(resp.Brokers)))
					}
				}
			}
			for v := int16(16); v < 18; v++ {
				req := at(fetchOf(topic.name, 0, 0), v)
				req.Topics[0].TopicID = topic.id
				resp := ask[*kmsg.FetchResponse](other, req)
				p, what := resp.Topics[0].Partitions[0], fmt.Sprintf("Fetch v%d elsewhere", v)
				if len(resp.Brokers) == 1 {
					sent(what, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch, resp.Brokers[0].NodeID)
				} else {
					wrong = append(wrong, fmt.Sprintf("%s: %d brokers are named", what, len(resp.Brokers)))
				}
			}
			return wrong
		}
		// The last word on a reassignment may come after all is as it was asked for, with one more epoch: what was asked
		// of the epoch before is asked again.
		for {
			wrong := table()
			now := tr.awaitReplicas(t, topic, []int32{b, a})
			if now == epoch {
				for _, w := range wrong {
					t.Error(w)
				}
				return
			}
			epoch = now
		}
	}},
	{"leader epochs/where each ended, and who has read beyond that", func(t *testing.T, tr *trio) {
		a, b := tr.ids[0], tr.ids[1]
		topic := tr.topicOn(t, []int32{a}, nil)
		mustProduce(tr.at(t, a), topic.name, batch(t, "1", "2"), 0)
		tr.move(t, topic, b)
		w := tr.at(t, b)
		mustProduce(w, topic.name, batch(t, "3", "4"), 2)
		batches := batchesOf(t, fetchOne(w, topic.name, 0).RecordBatches)
		if len(batches) != 2 || batches[0].LeaderEpoch() >= batches[1].LeaderEpoch() {
			t.Fatalf("%d batches", len(batches))
		}
		first, second := batches[0].LeaderEpoch(), batches[1].LeaderEpoch()
		for v := int16(2); v < 5; v++ {
			for epoch, want := range map[int32][2]int64{first: {int64(first), 2}, second: {int64(second), 4}, second - 1: {int64(first), 2}} {
				if p := endOfEpoch(w, v, topic.name, -1, epoch); p.ErrorCode != 0 || int64(p.LeaderEpoch) != want[0] || p.EndOffset != want[1] {
					t.Errorf("v%d: the end of epoch %d: %+v, want %v", v, epoch, p, want)
				}
			}
		}
		for v := int16(12); v < 18; v++ {
			for _, c := range []struct {
				epoch    int32
				offset   int64
				diverges bool
			}{{first, 2, false}, {first, 3, true}, {second, 3, false}, {second, 2, false}} {
				req := at(fetchOf(topic.name, 0, c.offset), v)
				req.Topics[0].TopicID, req.Topics[0].Partitions[0].LastFetchedEpoch = topic.id, c.epoch
				p := ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]
				wantCode(t, "fetch", p.ErrorCode, nil)
				if c.diverges && (p.DivergingEpoch.Epoch != first || p.DivergingEpoch.EndOffset != 2 || len(p.RecordBatches) > 0) ||
					!c.diverges && (p.DivergingEpoch.Epoch != -1 || len(p.RecordBatches) == 0) {
					t.Errorf("v%d: %+v: %d bytes, diverging %+v", v, c, len(p.RecordBatches), p.DivergingEpoch)
				}
			}
		}
	}},
	{"coordinators/every request to one that is none", func(t *testing.T, tr *trio) {
		topic := tr.topicOn(t, []int32{tr.ids[0]}, nil)
		group, txn := tr.name("group"), tr.name("txn")
		there, here := tr.coordinatorOf(t, 0, group), tr.ids[0]
		for _, id := range tr.ids {
			if id != there {
				here = id
			}
		}
		w := tr.at(t, here)
		for _, api := range groupAPIs(topic.name) {
			for v := api.first; v <= api.last; v++ {
				wantCode(t, fmt.Sprintf("%s v%d", api.name, v), api.ask(w, v, speaker{group, "nobody", 1, nil}), kerr.NotCoordinator)
			}
		}
		for v := int16(7); v < 10; v++ {
			code, got := committed(w, v, group, map[string][]int32{topic.name: {0}})
			wantCode(t, fmt.Sprintf("OffsetFetch v%d (%v)", v, got), code, kerr.NotCoordinator)
		}
		for v := range int16(7) {
			wantCode(t, fmt.Sprintf("DescribeGroups v%d", v), ask[*kmsg.DescribeGroupsResponse](w, at(describeGroups(group), v)).Groups[0].ErrorCode, kerr.NotCoordinator)
		}
		wantCode(t, "DeleteGroups", deleteGroups(w, group)[group], kerr.NotCoordinator)
		code, _ := deleteOffsets(w, group, map[string][]int32{topic.name: {0}})
		wantCode(t, "OffsetDelete", code, kerr.NotCoordinator)
		c := tr.consumerOf(t, group, "m1", topic.name)
		c.w = w
		wantCode(t, "ConsumerGroupHeartbeat", c.beat().ErrorCode, kerr.NotCoordinator)
		wantCode(t, "ConsumerGroupDescribe", describeConsumers(w, group).ErrorCode, kerr.NotCoordinator)
		o := &offsetsProducer{w, txn, 1, 0}
		for v := range int16(6) {
			wantCode(t, fmt.Sprintf("TxnOffsetCommit v%d", v), o.commit(o.commitOf(v, group, topic.name, 0, 5)), kerr.NotCoordinator)
		}

		there = tr.coordinatorOf(t, 1, txn)
		for _, id := range tr.ids {
			if id != there {
				here = id
			}
		}
		p := &txnProducer{tr.at(t, here), txn, 1, 0}
		for v := range int16(6) {
			f := func(api string, code int16) {
				t.Helper()
				wantCode(t, fmt.Sprintf("%s v%d", api, v), code, kerr.NotCoordinator)
			}
			f("InitProducerId", ask[*kmsg.InitProducerIDResponse](p.wire, initOf(v, txn)).ErrorCode)
			f("EndTxn", p.end(v, true).ErrorCode)
			if v < 4 {
				f("AddPartitionsToTxn", p.add(v, topic.name, 0)[0])
			} else {
				f("AddPartitionsToTxn, verifying", p.batch(v, true, topic.name, 0).Transactions[0].Topics[0].Partitions[0].ErrorCode)
				f("AddPartitionsToTxn", p.batch(v, false, topic.name, 0).Transactions[0].Topics[0].Partitions[0].ErrorCode)
			}
			if v < 5 {
				req := at(kmsg.NewPtrAddOffsetsToTxnRequest(), v)
				req.TransactionalID, req.ProducerID, req.Group = txn, 1, group
				f("AddOffsetsToTxn", ask[*kmsg.AddOffsetsToTxnResponse](p.wire, req).ErrorCode)
			}
		}
		wantCode(t, "DescribeTransactions", p.describe().ErrorCode, kerr.NotCoordinator)
	}},
	{"groups/one that is full, in each version", func(t *testing.T, tr *trio) {
		group, w := tr.groupAt(t, -1)
		w2 := (&target{addr: w.RemoteAddr().String()}).dial(t)
		one := joined(t, w, group, nil)
		join := joinOf(3, group, "", nil)
		w2.send(join)
		Await(t, 10*time.Second, "the rebalance", func() error {
			if c := beat(w, group, one.MemberID, one.Generation, nil); c != kerr.RebalanceInProgress.Code {
				return fmt.Errorf("its beat is answered %d", c)
			}
			return nil
		})
		again := ask[*kmsg.JoinGroupResponse](w, joinOf(7, group, one.MemberID, nil))
		wantCode(t, "join again", again.ErrorCode, nil)
		if _, err := w2.receive(join); err != nil {
			t.Fatal(err)
		}
		full := func() {
			t.Helper()
			for v := range int16(10) {
				wantCode(t, fmt.Sprintf("v%d", v), ask[*kmsg.JoinGroupResponse](w, joinOf(v, group, "", nil)).ErrorCode, kerr.GroupMaxSizeReached)
				if v >= 5 {
					wantCode(t, fmt.Sprintf("v%d, static", v), ask[*kmsg.JoinGroupResponse](w, joinOf(v, group, "", kmsg.StringPtr("i"))).ErrorCode, kerr.GroupMaxSizeReached)
				}
			}
		}
		full()
		wantCode(t, "sync", ask[*kmsg.SyncGroupResponse](w, syncOf(group, one.MemberID, again.Generation, nil, map[string]string{one.MemberID: "a"})).ErrorCode, nil)
		full()
		wantCode(t, "a beat of who is in", beat(w, group, one.MemberID, again.Generation, nil), nil)

		group, w = tr.groupAt(t, -1)
		topic := tr.topicOn(t, []int32{tr.ids[0]}, nil)
		member := func(id string) *consumer {
			c := tr.consumerOf(t, group, id, topic.name)
			c.w = w
			return c
		}
		m1, m2, m3 := member("m1"), member("m2"), member("m3")
		m1.mustBeat()
		m2.mustBeat()
		wantCode(t, "the third consumer", m3.beat().ErrorCode, kerr.GroupMaxSizeReached)
		wantCode(t, "a classic one", ask[*kmsg.JoinGroupResponse](w, classicConsumer(group, "", topic.name)).ErrorCode, kerr.GroupMaxSizeReached)
		m1.mustBeat()
		wantCode(t, "leaving", m2.leave(-1), nil)
		m3.mustBeat()
	}},
	{"replicas/too few in sync", func(t *testing.T, tr *trio) {
		a, b := tr.ids[0], tr.ids[1]
		topic := tr.topicOn(t, []int32{a, b}, map[string]string{"min.insync.replicas": "2"})
		w := tr.at(t, a)
		mustProduce(w, topic.name, batch(t, "0"), 0)
		p := newIdempotent(t, &tr.target, topic.name)
		p.w = w
		p.try("the first", 0, 1, nil, 1)
		back := tr.away(t, b)
		short := produceOf(topic.name, -1, p.batch(1, "late"))
		short.TimeoutMillis = 300
		got := ask[*kmsg.ProduceResponse](w, short).Topics[0].Partitions[0]
		wantCode(t, "acks=all while the follower is silent", got.ErrorCode, kerr.RequestTimedOut)
		Await(t, 90*time.Second, "too few in sync", func() error {
			req := produceOf(topic.name, -1, p.batch(1, "late"))
			req.TimeoutMillis = 300
			if code := ask[*kmsg.ProduceResponse](w, req).Topics[0].Partitions[0].ErrorCode; code != kerr.NotEnoughReplicas.Code {
				return fmt.Errorf("%v", kerr.ErrorForCode(code))
			}
			return nil
		})
		for v := int16(3); v < 13; v++ {
			got := ask[*kmsg.ProduceResponse](w, at(produceOf(topic.name, -1, batch(t, "x")), v)).Topics[0].Partitions[0]
			wantCode(t, fmt.Sprintf("acks=all v%d", v), got.ErrorCode, kerr.NotEnoughReplicas)
			if got.BaseOffset != -1 {
				t.Errorf("v%d: offset %d", v, got.BaseOffset)
			}
		}
		wantCode(t, "a gap", produce(w, topic.name, p.batch(7, "x")).ErrorCode, kerr.NotEnoughReplicas) // which is looked at later
		one := ask[*kmsg.ProduceResponse](w, produceOf(topic.name, 1, batch(t, "1"))).Topics[0].Partitions[0]
		wantCode(t, "acks=1", one.ErrorCode, nil)
		if one.BaseOffset != 3 {
			t.Errorf("acks=1: offset %d, want 3", one.BaseOffset)
		}
		if f := fetchOne(w, topic.name, 0); f.HighWatermark > 3 || len(values(t, f.RecordBatches)) > 3 {
			t.Errorf("what has too few copies is seen: watermark %d", f.HighWatermark)
		}
		back()
		Await(t, 90*time.Second, "all in sync", func() error {
			req := produceOf(topic.name, -1, p.batch(1, "late"))
			got := ask[*kmsg.ProduceResponse](w, req).Topics[0].Partitions[0]
			if got.ErrorCode == 0 && got.BaseOffset != 2 {
				t.Fatalf("the batch whose time was up is at %d when it is sent again", got.BaseOffset)
			}
			return kerr.ErrorForCode(got.ErrorCode)
		})
	}},
	{"transactions/what is asked while the markers cannot be written", func(t *testing.T, tr *trio) {
		gone := tr.ids[2]
		topic, free := tr.topicOn(t, []int32{gone}, nil), tr.topicOn(t, []int32{tr.ids[0]}, nil)
		p := tr.txnAt(t, gone)
		group, gw := tr.groupAt(t, gone)
		p.added(topic.name, 0)
		add := func(v int16) int16 {
			req := at(kmsg.NewPtrAddOffsetsToTxnRequest(), v)
			req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.id, p.pid, p.epoch, group
			return ask[*kmsg.AddOffsetsToTxnResponse](p.wire, req).ErrorCode
		}
		wantCode(t, "the group", add(3), nil)
		o := &offsetsProducer{gw, p.id, p.pid, p.epoch}
		wantCode(t, "its offset", o.commit(o.commitOf(3, group, free.name, 0, 5)), nil)
		back := tr.away(t, gone)
		Await(t, 90*time.Second, "the commit", func() error { // the coordinator's own log has a replica there, too
			if code := p.end(4, true).ErrorCode; code != 0 && code != kerr.ConcurrentTransactions.Code {
				return kerr.ErrorForCode(code)
			}
			if d := p.describe(); d.State != "PrepareCommit" {
				return fmt.Errorf("%s", d.State)
			}
			return nil
		})
		again := func(what string, code int16) {
			t.Helper()
			wantCode(t, what, code, kerr.ConcurrentTransactions)
		}
		for v := range int16(6) {
			again(fmt.Sprintf("EndTxn v%d", v), p.end(v, true).ErrorCode)
			again(fmt.Sprintf("EndTxn v%d, the opposite", v), p.end(v, false).ErrorCode)
			again(fmt.Sprintf("InitProducerId v%d", v), ask[*kmsg.InitProducerIDResponse](p.wire, initOf(v, p.id)).ErrorCode)
			if v < 4 {
				again(fmt.Sprintf("AddPartitionsToTxn v%d", v), p.add(v, free.name, 0)[0])
			} else {
				for _, verify := range []bool{true, false} {
					again(fmt.Sprintf("AddPartitionsToTxn v%d, verifying %v", v, verify), p.batch(v, verify, free.name, 0).Transactions[0].Topics[0].Partitions[0].ErrorCode)
				}
			}
			if v < 5 {
				again(fmt.Sprintf("AddOffsetsToTxn v%d", v), add(v))
			}
		}
		old := p.as(p.pid, p.epoch-1)
		wantCode(t, "an older epoch", old.add(3, free.name, 0)[0], pick(&tr.target, kerr.ProducerFenced, kerr.ConcurrentTransactions))
		wantCode(t, "an older epoch ends", old.end(4, true).ErrorCode, kerr.ProducerFenced)
		// The marker of the group's partition waits for nobody else's.
		awaitFetched(gw, group, free.name, 0, "5/0")
		back()
		p.awaitState("CompleteCommit")
	}},
}
