package handler

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/metadata"
)

// A broker that has heard nothing of the cluster yet must not be taken for one that knows
// that there is no such topic: clients give up what is unknown.
func TestBrokerThatKnowsNoClusterDoesNotSayThatATopicIsUnknown(t *testing.T) {
	id := [16]byte{1}
	produce := func() (kmsg.Request, func(kmsg.Response) int16) {
		req := kmsg.NewPtrProduceRequest()
		req.SetVersion(13)
		req.Acks, req.TimeoutMillis = 1, 1000
		req.Topics = []kmsg.ProduceRequestTopic{{TopicID: id, Partitions: make([]kmsg.ProduceRequestTopicPartition, 1)}}
		return req, func(r kmsg.Response) int16 { return r.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode }
	}
	fetch := func() (kmsg.Request, func(kmsg.Response) int16) {
		req := kmsg.NewPtrFetchRequest()
		req.SetVersion(13)
		req.SessionEpoch = -1
		req.Topics = []kmsg.FetchRequestTopic{{TopicID: id, Partitions: []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}}}
		return req, func(r kmsg.Response) int16 { return r.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode }
	}
	commit := func(version int16) func() (kmsg.Request, func(kmsg.Response) int16) {
		return func() (kmsg.Request, func(kmsg.Response) int16) {
			req := kmsg.NewPtrOffsetCommitRequest()
			req.SetVersion(version)
			req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", TopicID: id, Partitions: make([]kmsg.OffsetCommitRequestTopicPartition, 1)}}
			return req, func(r kmsg.Response) int16 { return r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode }
		}
	}
	add := func() (kmsg.Request, func(kmsg.Response) int16) {
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.SetVersion(3)
		req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		return req, func(r kmsg.Response) int16 {
			return r.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode
		}
	}
	commitInTxn := func() (kmsg.Request, func(kmsg.Response) int16) {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.SetVersion(4)
		req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: make([]kmsg.TxnOffsetCommitRequestTopicPartition, 1)}}
		return req, func(r kmsg.Response) int16 {
			return r.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
		}
	}
	for what, c := range map[string]struct {
		make         func() (kmsg.Request, func(kmsg.Response) int16)
		blank, after *kerr.Error
	}{
		"Produce by id":        {produce, kerr.NotLeaderForPartition, kerr.UnknownTopicID},
		"Fetch by id":          {fetch, kerr.NotLeaderForPartition, kerr.UnknownTopicID},
		"OffsetCommit by id":   {commit(10), kerr.NotCoordinator, kerr.UnknownTopicID},
		"OffsetCommit by name": {commit(9), kerr.NotCoordinator, kerr.UnknownTopicOrPartition},
		"AddPartitionsToTxn":   {add, kerr.NotCoordinator, kerr.UnknownTopicOrPartition},
		"TxnOffsetCommit":      {commitInTxn, kerr.NotCoordinator, kerr.UnknownTopicOrPartition},
	} {
		t.Run(what, func(t *testing.T) {
			cache := metadata.NewCache("c")
			p := newHotPath(t, cache)
			ask := func() int16 {
				req, code := c.make()
				p.send(frameOf(req))
				body := p.buf[4:p.receive()]
				if req.IsFlexible() {
					body = body[1:]
				}
				resp := req.ResponseKind()
				if err := resp.ReadFrom(body); err != nil {
					t.Fatal(err)
				}
				return code(resp)
			}
			if got := ask(); got != c.blank.Code {
				t.Errorf("without an image: %v", kerr.ErrorForCode(got))
			}
			word := kmsg.NewPtrUpdateMetadataRequest()
			word.SetVersion(8)
			word.ControllerID, word.ControllerEpoch, word.BrokerEpoch = 1, 1, -1
			if _, err := cache.Apply(word); err != nil {
				t.Fatal(err)
			}
			if got := ask(); got != c.after.Code {
				t.Errorf("with one that does not have it: %v", kerr.ErrorForCode(got))
			}
		})
	}
}
