package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/partition"
	"penstock/tenants"
)

// DescribeProducers (key 61), version 0 (KIP-664).
//
// What a replica knows of idempotent and transactional producers, by which an administrator finds
// transactions that nobody ends. Asked of the leader as a rule; a follower answers, too. Needs
// Read on the topic.
func (h *Handler) describeProducers(r *listener.Request) {
	req := r.Body.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		refused := h.mayDescribeProducers(r, t.Topic)
		for _, p := range t.Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = p
			err := refused
			var known []partition.ActiveProducer
			if err == nil {
				known, err = h.Partitions.Producers(partition.TopicPartition{Topic: t.Topic, Partition: p})
			}
			rp.ErrorCode, rp.ErrorMessage = code(err), text(err)
			rp.ActiveProducers = make([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, 0, len(known))
			for _, k := range known {
				a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				a.ProducerID, a.ProducerEpoch = k.ID, int32(k.Epoch)
				a.LastSequence, a.LastTimestamp = k.LastSequence, k.LastTimestamp
				a.CoordinatorEpoch, a.CurrentTxnStartOffset = k.CoordinatorEpoch, k.TransactionStart
				rp.ActiveProducers = append(rp.ActiveProducers, a)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	r.Reply(resp)
}

func (h *Handler) mayDescribeProducers(r *listener.Request, topic string) error {
	switch {
	case tenants.CheckTopicName(topic) != nil:
		return kerr.InvalidTopicException
	case !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, topic):
		return kerr.TopicAuthorizationFailed
	case h.Metadata.Image().Topic(topic) == nil:
		return kerr.UnknownTopicOrPartition
	}
	return nil
}
