package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetsProducer is a transactional producer that speaks for itself.
type offsetsProducer struct {
	w     *wire
	id    string
	pid   int64
	epoch int16
}

func (b *target) offsetsProducer(t *testing.T, id string) *offsetsProducer {
	t.Helper()
	p := &offsetsProducer{w: b.dial(t), id: id}
	Await(t, 30*time.Second, "a transaction coordinator", func() error {
		req := at(kmsg.NewPtrFindCoordinatorRequest(), 3)
		req.CoordinatorKey, req.CoordinatorType = id, 1
		return kerr.ErrorForCode(ask[*kmsg.FindCoordinatorResponse](p.w, req).ErrorCode)
	})
	p.init()
	return p
}

// init begins anew: what is open is aborted, and the producer before is fenced.
func (p *offsetsProducer) init() {
	p.w.t.Helper()
	Await(p.w.t, 30*time.Second, "a producer id", func() error {
		req := at(kmsg.NewPtrInitProducerIDRequest(), 4)
		req.TransactionalID, req.TransactionTimeoutMillis = &p.id, 60_000
		r := ask[*kmsg.InitProducerIDResponse](p.w, req)
		p.pid, p.epoch = r.ProducerID, r.ProducerEpoch
		return kerr.ErrorForCode(r.ErrorCode)
	})
}

// addGroup makes the group's partition part of the transaction, as before KIP-890's part 2.
func (p *offsetsProducer) addGroup(group string) {
	p.w.t.Helper()
	Await(p.w.t, 30*time.Second, "the group in the transaction", func() error {
		req := at(kmsg.NewPtrAddOffsetsToTxnRequest(), 3)
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.id, p.pid, p.epoch, group
		return kerr.ErrorForCode(ask[*kmsg.AddOffsetsToTxnResponse](p.w, req).ErrorCode)
	})
}

func (p *offsetsProducer) commitOf(version int16, group, topic string, partition int32, offset int64) *kmsg.TxnOffsetCommitRequest {
	req := at(kmsg.NewPtrTxnOffsetCommitRequest(), version)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.Generation = p.id, p.pid, p.epoch, group, -1
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.Metadata = partition, offset, kmsg.StringPtr("m")
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (p *offsetsProducer) commit(req *kmsg.TxnOffsetCommitRequest) int16 {
	p.w.t.Helper()
	return ask[*kmsg.TxnOffsetCommitResponse](p.w, req).Topics[0].Partitions[0].ErrorCode
}

func (p *offsetsProducer) end(version int16, commit bool) {
	p.w.t.Helper()
	Await(p.w.t, 30*time.Second, "the transaction's end", func() error {
		req := at(kmsg.NewPtrEndTxnRequest(), version)
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.pid, p.epoch, commit
		r := ask[*kmsg.EndTxnResponse](p.w, req)
		if r.ErrorCode == 0 && version >= 5 {
			p.pid, p.epoch = r.ProducerID, r.ProducerEpoch
		}
		return kerr.ErrorForCode(r.ErrorCode)
	})
}

// fetched is the group's offset of a partition, for a reader that wants stable ones or not.
func fetched(w *wire, group, topic string, partition int32, stable bool) string {
	w.t.Helper()
	req := at(kmsg.NewPtrOffsetFetchRequest(), 7)
	req.Group, req.RequireStable = group, stable
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	p := ask[*kmsg.OffsetFetchResponse](w, req).Topics[0].Partitions[0]
	return fmt.Sprintf("%d/%d", p.Offset, p.ErrorCode)
}

func awaitFetched(w *wire, group, topic string, partition int32, want string) {
	w.t.Helper()
	Await(w.t, 20*time.Second, "the offset "+want, func() error {
		if got := fetched(w, group, topic, partition, true); got != want {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
}

var unstable = fmt.Sprintf("-1/%d", kerr.UnstableOffsetCommit.Code)

// txnOffsetCases are of offsets that are committed in transactions.
var txnOffsetCases = []blackBoxCase{
	{"groups/offsets in a transaction count with its commit, by version", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 2)
		w := b.coordinator(t, group)
		p := b.offsetsProducer(t, b.name("txn"))
		wantCode(t, "commit outside", commit(w, commitOf(7, group, "", -1, topic.name, map[int32]int64{0: 1})), nil)
		for v := range int16(5) {
			for _, committed := range []bool{true, false} {
				before, want := fetched(w, group, topic.name, 0, false), int64(v)*10+5
				p.addGroup(group)
				wantCode(t, fmt.Sprint("commit v", v), p.commit(p.commitOf(v, group, topic.name, 0, want)), nil)
				if got := fetched(w, group, topic.name, 0, false); got != before {
					t.Errorf("v%d: %s before the end, want %s", v, got, before)
				}
				if got := fetched(w, group, topic.name, 0, true); got != unstable {
					t.Errorf("v%d: %s for who wants it stable", v, got)
				}
				if got := fetched(w, group, topic.name, 1, true); got != "-1/0" {
					t.Errorf("v%d: %s of another partition", v, got)
				}
				p.end(3, committed)
				if committed {
					before = fmt.Sprintf("%d/0", want)
				}
				awaitFetched(w, group, topic.name, 0, before)
			}
		}
	}},
	{"groups/offsets in a transaction of the second protocol", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 1)
		w := b.coordinator(t, group)
		p := b.offsetsProducer(t, b.name("txn"))
		for i, committed := range []bool{true, false, true} {
			epoch := p.epoch
			Await(t, 20*time.Second, "the next transaction", func() error { // CONCURRENT_TRANSACTIONS while the last one is being completed
				return kerr.ErrorForCode(p.commit(p.commitOf(5, group, topic.name, 0, int64(i+1))))
			})
			if got := fetched(w, group, topic.name, 0, true); got != unstable {
				t.Errorf("%s for who wants it stable", got)
			}
			p.end(5, committed)
			if p.epoch <= epoch {
				t.Errorf("epoch %d after %d", p.epoch, epoch)
			}
			awaitFetched(w, group, topic.name, 0, []string{"1/0", "1/0", "3/0"}[i])
			late := p.commitOf(5, group, topic.name, 0, 99)
			late.ProducerEpoch = epoch
			wantCode(t, "of the epoch before", p.commit(late), kerr.InvalidProducerEpoch)
		}
	}},
	{"groups/commits in a transaction that are refused", func(t *testing.T, b *target) {
		group, topic, instance := b.name("group"), b.topic(t, 1), "i"
		w := b.coordinator(t, group)
		p := b.offsetsProducer(t, b.name("txn"))
		try := func(what string, change func(*kmsg.TxnOffsetCommitRequest), want *kerr.Error) {
			t.Helper()
			req := p.commitOf(4, group, topic.name, 0, 5)
			change(req)
			wantCode(t, what, p.commit(req), want)
		}
		try("the group is not in the transaction", func(r *kmsg.TxnOffsetCommitRequest) { r.Version = 3 }, kerr.InvalidTxnState)
		try("the same, for who knows of an error that is not fatal", func(*kmsg.TxnOffsetCommitRequest) {}, kerr.TransactionAbortable)
		p.addGroup(group)
		try("a generation of a group that is not there", func(r *kmsg.TxnOffsetCommitRequest) { r.Generation, r.MemberID = 1, "m" }, kerr.IllegalGeneration)
		m := joined(t, w, group, &instance)
		me := func(r *kmsg.TxnOffsetCommitRequest) {
			r.Generation, r.MemberID, r.InstanceID = m.Generation, m.MemberID, &instance
		}
		try("a member", me, nil)
		try("nobody in particular", func(*kmsg.TxnOffsetCommitRequest) {}, nil)
		try("an old generation", func(r *kmsg.TxnOffsetCommitRequest) { me(r); r.Generation-- }, kerr.IllegalGeneration)
		try("no member", func(r *kmsg.TxnOffsetCommitRequest) { me(r); r.MemberID, r.InstanceID = "nobody", nil }, kerr.UnknownMemberID)
		try("an instance replaced", func(r *kmsg.TxnOffsetCommitRequest) { me(r); r.MemberID = "before" }, kerr.FencedInstanceID)
		try("no such instance", func(r *kmsg.TxnOffsetCommitRequest) { me(r); r.InstanceID = kmsg.StringPtr("other") }, kerr.UnknownMemberID)
		try("an unknown topic", func(r *kmsg.TxnOffsetCommitRequest) { r.Topics[0].Topic = b.name("absent") }, kerr.UnknownTopicOrPartition)
		try("an unknown partition", func(r *kmsg.TxnOffsetCommitRequest) { r.Topics[0].Partitions[0].Partition = 7 }, kerr.UnknownTopicOrPartition)
		try("metadata too long", func(r *kmsg.TxnOffsetCommitRequest) {
			r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(string(make([]byte, 5000)))
		}, kerr.OffsetMetadataTooLarge)
		try("no name of a group", func(r *kmsg.TxnOffsetCommitRequest) { r.Group = "" }, kerr.InvalidGroupID)
		p.end(3, true)
		awaitFetched(w, group, topic.name, 0, "5/0")

		old := *p
		p.init()
		p.addGroup(group)
		wantCode(t, "a producer that was fenced", old.commit(old.commitOf(4, group, topic.name, 0, 6)), kerr.InvalidProducerEpoch)
		p.end(3, false)
	}},
	{"groups/what a transaction has pending goes with the group and with OffsetDelete", func(t *testing.T, b *target) {
		topic := b.topic(t, 2)
		deleted, trimmed := b.name("group"), b.name("group")
		w := b.coordinator(t, deleted)
		b.coordinator(t, trimmed)
		p := b.offsetsProducer(t, b.name("txn"))
		for _, g := range []string{deleted, trimmed} {
			p.addGroup(g)
			for i := range int32(2) {
				wantCode(t, "commit", p.commit(p.commitOf(3, g, topic.name, i, 5)), nil)
			}
		}
		wantCode(t, "delete", deleteGroups(w, deleted)[deleted], nil)
		code, got := deleteOffsets(w, trimmed, map[string][]int32{topic.name: {0}})
		wantCode(t, "delete offsets", code, nil)
		wantCode(t, "of a pending one", got[topic.name+"-0"], nil)
		if got := fetched(w, trimmed, topic.name, 0, true); got != "-1/0" {
			t.Errorf("pending after all: %s", got)
		}
		p.end(3, true)
		awaitFetched(w, trimmed, topic.name, 1, "5/0")
		for _, g := range []string{deleted, trimmed} {
			if got := fetched(w, g, topic.name, 0, true); got != "-1/0" {
				t.Errorf("%s has %s", g, got)
			}
		}
	}},
	{"groups/the newest of commits in and out of transactions counts", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 1)
		w := b.coordinator(t, group)
		p, q := b.offsetsProducer(t, b.name("txn")), b.offsetsProducer(t, b.name("txn"))
		p.addGroup(group)
		q.addGroup(group)
		wantCode(t, "commit", p.commit(p.commitOf(3, group, topic.name, 0, 1)), nil)
		wantCode(t, "commit", q.commit(q.commitOf(3, group, topic.name, 0, 2)), nil)
		q.end(3, true)
		Await(t, 20*time.Second, "the second one's", func() error {
			if got := fetched(w, group, topic.name, 0, false); got != "2/0" {
				return fmt.Errorf("%s", got)
			}
			return nil
		})
		if got := fetched(w, group, topic.name, 0, true); got != unstable {
			t.Errorf("%s while the first is open", got)
		}
		p.end(3, true)
		awaitFetched(w, group, topic.name, 0, "2/0")
		p.addGroup(group)
		wantCode(t, "commit", p.commit(p.commitOf(3, group, topic.name, 0, 3)), nil)
		wantCode(t, "commit outside", commit(w, commitOf(7, group, "", -1, topic.name, map[int32]int64{0: 4})), nil)
		p.end(3, true)
		awaitFetched(w, group, topic.name, 0, "4/0")
	}},
}
