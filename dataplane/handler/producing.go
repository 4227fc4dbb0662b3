package handler

import (
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/partition"
)

// producing is one Produce request between its reading and its reply. Its memory is
// used again: with one record a request, what it holds would otherwise be most of
// what such a request allocates.
type producing struct {
	h       *Handler
	r       *listener.Request
	acks    int16
	failed  bool
	size    int // topics and partitions
	entries []partition.AppendEntry
	answers []*kmsg.ProduceResponseTopicPartition // of the entries, in resp
	results []partition.AppendResult
	resp    kmsg.ProduceResponse

	callback func([]partition.AppendResult) // method done
}

var producings sync.Pool

// maxPooledProduce bounds the size of those whose memory is kept.
const maxPooledProduce = 128

func newProducing(h *Handler, r *listener.Request, req *kmsg.ProduceRequest) *producing {
	x, _ := producings.Get().(*producing)
	if x == nil {
		x = new(producing)
		x.callback = x.done
	}
	x.h, x.r, x.acks, x.failed, x.size = h, r, req.Acks, false, len(req.Topics)
	x.entries, x.answers = x.entries[:0], x.answers[:0]
	x.resp.ThrottleMillis = 0
	return x
}

func (x *producing) done(results []partition.AppendResult) {
	if !x.h.parting() {
		x.reply(results)
		return
	}
	away := notLed(results, func(r *partition.AppendResult) (partition.TopicPartition, error) { return r.TP, r.Err })
	x.h.sendAway(away, func() { x.reply(results) })
}

func (x *producing) reply(results []partition.AppendResult) {
	r, resp := x.r, &x.resp
	named := 0
	for i := range results {
		a := &results[i]
		if r.Version >= 13 && errors.Is(a.Err, kerr.InconsistentTopicID) {
			a.Err = kerr.UnknownTopicID
		}
		a.Leader, a.LeaderEpoch = x.h.ledBy(a.TP, a.Err, a.Leader, a.LeaderEpoch)
		named += answerAppend(x.answers[i], a, maxErrorRecords-named)
		x.failed = x.failed || a.Err != nil
		if a.Leader >= 0 && a.Err != nil && r.Version >= 10 {
			resp.Brokers = addBroker(resp.Brokers, x.h.produceBroker(a.Leader, r.Conn.Listener()))
		}
	}
	switch {
	case x.acks != 0:
		r.Reply(resp)
	case x.failed:
		r.CloseConn("a produce request with acks=0 failed")
	default:
		r.ReplyNothing()
	}
	// The reply has been encoded.
	if x.size > maxPooledProduce {
		return
	}
	clear(x.entries) // they alias the frame
	if results != nil {
		clear(results)
		x.results = results
	}
	x.h, x.r, x.resp.Brokers = nil, nil, nil
	producings.Put(x)
}
