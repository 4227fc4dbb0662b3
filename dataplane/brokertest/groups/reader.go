package groups

import (
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reader writes down what the requests and answers of one incarnation mean.
type reader struct {
	log    *Log
	group  string
	member string

	// doubtful counts commits that were sent and not answered: they may still arrive. An answer of
	// any kind says that it will not be done later.
	doubtful atomic.Int32
	// fences counts answers that said that it is no member, or not in this generation.
	fences atomic.Int64
	// replaced: another process has its instance id. It has to end.
	replaced atomic.Bool
}

func (r *reader) wants(key int16) bool {
	return slices.Contains([]int16{8, 9, 11, 12, 14, 68}, key)
}

func (r *reader) note(a asked, e Event) {
	e.Group, e.Member, e.Key, e.Broker = r.group, r.member, a.key, a.broker
	r.log.Note(e)
}

// open decodes a request's body.
func open(a asked) kmsg.Request {
	req := kmsg.RequestForKey(a.key)
	req.SetVersion(a.version)
	body := a.body
	if req.IsFlexible() && len(body) > 0 {
		body = body[1:] // the header's tags, of which clients have none
	}
	if err := req.ReadFrom(body); err != nil {
		panic("a client's own request cannot be read: " + err.Error())
	}
	return req
}

// request sees what is about to be sent.
func (r *reader) request(a asked) {
	switch a.key {
	case int16(kmsg.JoinGroup):
		if req := open(a).(*kmsg.JoinGroupRequest); req.InstanceID != nil && req.MemberID == "" {
			r.note(a, Event{Kind: Joining, At: a.sent, Sent: a.sent, Instance: *req.InstanceID})
		}
	case int16(kmsg.OffsetCommit):
		r.note(a, Event{Kind: Commits, At: a.sent, Offsets: committing(open(a).(*kmsg.OffsetCommitRequest))})
	}
}

func committing(req *kmsg.OffsetCommitRequest) map[int32]int64 {
	offsets := map[int32]int64{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			offsets[p.Partition] = p.Offset
		}
	}
	return offsets
}

func (r *reader) unanswered(a asked) {
	if a.key == int16(kmsg.OffsetCommit) {
		r.doubtful.Add(1)
	}
}

// answer sees what is about to be read.
func (r *reader) answer(a asked, body []byte) {
	resp := kmsg.ResponseForKey(a.key)
	resp.SetVersion(a.version)
	if resp.IsFlexible() && len(body) > 0 {
		body = body[1:] // no tags, of ours
	}
	if err := resp.ReadFrom(body); err != nil {
		r.note(a, Event{Kind: Fenced, Code: kerr.UnknownServerError.Code, Sent: a.sent, Why: "an answer that cannot be read: " + err.Error()})
		return
	}
	switch resp := resp.(type) {
	case *kmsg.OffsetCommitResponse:
		r.committed(a, resp)
	case *kmsg.OffsetFetchResponse:
		if offsets, ok := fetched(resp); ok {
			r.note(a, Event{Kind: Seen, Sent: a.sent, Offsets: offsets})
		}
	case *kmsg.JoinGroupResponse:
		r.status(a, resp.ErrorCode, Event{Generation: resp.Generation})
	case *kmsg.HeartbeatResponse:
		r.status(a, resp.ErrorCode, Event{Generation: open(a).(*kmsg.HeartbeatRequest).Generation})
	case *kmsg.SyncGroupResponse:
		r.status(a, resp.ErrorCode, Event{Generation: open(a).(*kmsg.SyncGroupRequest).Generation})
	case *kmsg.ConsumerGroupHeartbeatResponse:
		if open(a).(*kmsg.ConsumerGroupHeartbeatRequest).MemberEpoch < 0 {
			return // it leaves, and may have left before: the answer to its first asking may be lost
		}
		e := Event{Generation: resp.MemberEpoch}
		if resp.Assignment != nil {
			e.Told = true
			for _, t := range resp.Assignment.Topics {
				e.Partitions = append(e.Partitions, t.Partitions...)
			}
		}
		r.status(a, resp.ErrorCode, e)
	}
}

// status writes down what an answer says about membership, if it does.
func (r *reader) status(a asked, code int16, e Event) {
	e.Sent, e.Code = a.sent, code
	switch code {
	case 0:
		e.Kind = Alive
	case kerr.RebalanceInProgress.Code:
		if a.key != int16(kmsg.Heartbeat) {
			return
		}
		e.Kind, e.Rebalancing = Alive, true
	case kerr.UnknownMemberID.Code, kerr.IllegalGeneration.Code, kerr.FencedInstanceID.Code, kerr.FencedMemberEpoch.Code:
		e.Kind, e.Generation = Fenced, 0
		r.fences.Add(1)
		if code == kerr.FencedInstanceID.Code {
			r.replaced.Store(true)
		}
	default: // nothing is known: another coordinator, a member id to join with, ...
		return
	}
	r.note(a, e)
}

func (r *reader) committed(a asked, resp *kmsg.OffsetCommitResponse) {
	sent := committing(open(a).(*kmsg.OffsetCommitRequest))
	byCode := map[int16]map[int32]int64{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if byCode[p.ErrorCode] == nil {
				byCode[p.ErrorCode] = map[int32]int64{}
			}
			byCode[p.ErrorCode][p.Partition] = sent[p.Partition]
		}
	}
	for code, offsets := range byCode {
		r.note(a, Event{Kind: Committed, Sent: a.sent, Code: code, Offsets: offsets})
		switch code {
		case kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code, kerr.FencedMemberEpoch.Code:
			r.note(a, Event{Kind: Fenced, Sent: a.sent, Code: code})
			r.fences.Add(1)
		}
	}
}

// fetched takes the offsets of an answer of any version without errors.
func fetched(resp *kmsg.OffsetFetchResponse) (map[int32]int64, bool) {
	offsets := map[int32]int64{}
	if resp.Version < 8 {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 {
					offsets[p.Partition] = p.Offset
				}
			}
		}
		return offsets, resp.ErrorCode == 0
	}
	for _, g := range resp.Groups {
		if g.ErrorCode != 0 {
			return nil, false
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 {
					offsets[p.Partition] = p.Offset
				}
			}
		}
	}
	return offsets, true
}
