package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/partition"
)

// ListOffsets (key 2), versions 1 to 10.
//
// The first offset in log order whose time is not before the one asked for; the
// latest (-1), earliest (-2) and largest-timestamp (-3, v7+, KIP-734) offsets.
// Nothing that matches is offset -1 and no error. Without tiered storage the
// earliest local offset (-4, v8+) is the earliest one, and no offset is tiered
// (-5, v9+). A partition named twice in a request is refused as Kafka does.
func (h *Handler) listOffsets(r *listener.Request) {
	req := r.Body.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	twice := duplicated(req)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		var refused error
		if !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, t.Topic) {
			refused = kerr.TopicAuthorizationFailed
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Timestamp, rp.Offset, rp.LeaderEpoch = p.Partition, -1, -1, -1
			tp := partition.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			err := refused
			if err == nil && twice[tp] {
				err = kerr.InvalidRequest
			}
			if err == nil && !knownTimestamp(p.Timestamp, req.Version) {
				err = kerr.UnsupportedVersion
			}
			if err == nil {
				var found partition.OffsetResult
				found, err = h.Partitions.ListOffsets(tp, p.Timestamp, req.IsolationLevel == 1, p.CurrentLeaderEpoch, req.ReplicaID)
				if err == nil {
					rp.Timestamp, rp.Offset, rp.LeaderEpoch = found.Timestamp, found.Offset, found.LeaderEpoch
				}
			}
			rp.ErrorCode = code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	r.Reply(resp)
}

// knownTimestamp says whether a version has the special timestamp; an older
// client's number must not get a meaning that came later.
func knownTimestamp(ts int64, version int16) bool {
	switch ts {
	case partition.MaxTimestamp:
		return version >= 7
	case partition.EarliestLocal:
		return version >= 8
	case partition.LatestTiered:
		return version >= 9
	}
	return true
}

func duplicated(req *kmsg.ListOffsetsRequest) map[partition.TopicPartition]bool {
	seen, twice := map[partition.TopicPartition]bool{}, map[partition.TopicPartition]bool{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			tp := partition.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if seen[tp] {
				twice[tp] = true
			}
			seen[tp] = true
		}
	}
	return twice
}
