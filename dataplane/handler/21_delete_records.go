package handler

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/partition"
)

// DeleteRecords (key 21), versions 0 to 2 (KIP-107).
//
// Raises the log start of partitions led here to an offset, -1 for the high
// watermark, and answers with the least log start of all live replicas when that is
// as high, or the time is up. Needs Delete on the topic. Of a partition named twice
// the last entry counts.
func (h *Handler) deleteRecords(r *listener.Request) {
	req := r.Body.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	image := h.Metadata.Image()
	at := map[partition.TopicPartition][2]int{} // where the reply has it
	topics := map[string]int{}
	asked := map[partition.TopicPartition]int64{}
	for i := range req.Topics {
		t := &req.Topics[i]
		allowed := h.authorize(r, kmsg.ACLOperationDelete, kmsg.ACLResourceTypeTopic, t.Topic)
		for _, p := range t.Partitions {
			tp := partition.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if _, seen := at[tp]; !seen {
				j, ok := topics[t.Topic]
				if !ok {
					j = len(resp.Topics)
					topics[t.Topic] = j
					rt := kmsg.NewDeleteRecordsResponseTopic()
					rt.Topic = t.Topic
					resp.Topics = append(resp.Topics, rt)
				}
				rp := kmsg.NewDeleteRecordsResponseTopicPartition()
				rp.Partition, rp.LowWatermark = p.Partition, -1
				at[tp] = [2]int{j, len(resp.Topics[j].Partitions)}
				resp.Topics[j].Partitions = append(resp.Topics[j].Partitions, rp)
			}
			out := &resp.Topics[at[tp][0]].Partitions[at[tp][1]]
			switch {
			case !allowed:
				out.ErrorCode = kerr.TopicAuthorizationFailed.Code
			case image.Partition(t.Topic, p.Partition) == nil:
				out.ErrorCode = kerr.UnknownTopicOrPartition.Code
			default:
				asked[tp] = p.Offset
			}
		}
	}
	parts := make([]partition.DeletePart, 0, len(asked))
	for tp, offset := range asked {
		parts = append(parts, partition.DeletePart{TP: tp, Offset: offset})
	}
	if len(parts) == 0 {
		r.Reply(resp)
		return
	}
	h.Partitions.DeleteRecords(time.Duration(req.TimeoutMillis)*time.Millisecond, parts, func(results []partition.DeleteResult) {
		for _, res := range results {
			i := at[res.TP]
			out := &resp.Topics[i[0]].Partitions[i[1]]
			out.LowWatermark, out.ErrorCode = res.LowWatermark, code(res.Err)
		}
		r.Reply(resp)
	})
}
