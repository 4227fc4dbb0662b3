package brokertest

import "github.com/twmb/franz-go/pkg/kmsg"

// sampleTxn fills a request about transactions or the groups of KIP-848; false where it is
// none. The transactional id is called like the group.
func sampleTxn(req kmsg.Request, topic, group string) bool {
	text := "m"
	switch r := req.(type) {
	case *kmsg.AddPartitionsToTxnRequest:
		rt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		x := kmsg.NewAddPartitionsToTxnRequestTransaction()
		x.TransactionalID, x.ProducerID, x.Topics = group, 1<<40, append(x.Topics, rt)
		r.Transactions = append(r.Transactions, x)
		// What the request is made of up to version 3.
		old := kmsg.NewAddPartitionsToTxnRequestTopic()
		old.Topic, old.Partitions = topic, []int32{0}
		r.TransactionalID, r.ProducerID, r.Topics = group, 1<<40, append(r.Topics, old)
	case *kmsg.AddOffsetsToTxnRequest:
		r.TransactionalID, r.ProducerID, r.Group = group, 1<<40, group
	case *kmsg.EndTxnRequest:
		r.TransactionalID, r.ProducerID, r.Commit = group, 1<<40, true
	case *kmsg.WriteTxnMarkersRequest:
		rt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.Committed, m.Topics = 1<<40, true, append(m.Topics, rt)
		r.Markers = append(r.Markers, m)
	case *kmsg.TxnOffsetCommitRequest:
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Metadata = &text
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
		r.TransactionalID, r.Group, r.ProducerID, r.Generation = group, group, 1<<40, -1
		r.InstanceID, r.Topics = &text, append(r.Topics, rt)
	case *kmsg.OffsetDeleteRequest:
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic, rt.Partitions = topic, append(rt.Partitions, kmsg.NewOffsetDeleteRequestTopicPartition())
		r.Group, r.Topics = group, append(r.Topics, rt)
	case *kmsg.DescribeProducersRequest:
		rt := kmsg.NewDescribeProducersRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		r.Topics = append(r.Topics, rt)
	case *kmsg.DescribeTransactionsRequest:
		r.TransactionalIDs = []string{group}
	case *kmsg.ListTransactionsRequest:
		every := ".*"
		r.StateFilters, r.ProducerIDFilters, r.TransactionalIDPattern = []string{"Ongoing"}, []int64{1 << 40}, &every
	case *kmsg.ConsumerGroupHeartbeatRequest:
		owned := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		owned.TopicID, owned.Partitions = [16]byte{1}, []int32{0}
		regex, assignor := topic+".*", "uniform"
		r.Group, r.MemberID, r.MemberEpoch, r.InstanceID, r.RackID = group, "AAAAAAAAAAAAAAAAAAAAAQ", 1, &text, &text
		r.RebalanceTimeoutMillis, r.SubscribedTopicNames, r.SubscribedTopicRegex = 10000, []string{topic}, &regex
		r.ServerAssignor, r.Topics = &assignor, append(r.Topics, owned)
	case *kmsg.ConsumerGroupDescribeRequest:
		r.Groups = []string{group}
	default:
		return false
	}
	return true
}
