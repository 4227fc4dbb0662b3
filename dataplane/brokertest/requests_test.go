package brokertest

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// highest is the newest version that a broker serves, by key.
var highest = func() map[int16]int16 {
	m := map[int16]int16{}
	for _, a := range protocol.APIs() {
		m[a.Key] = a.Max
	}
	return m
}()

// sized is one batch of about n bytes.
func sized(t testing.TB, n int) []byte { return batch(t, strings.Repeat("x", n)) }

// fetchFrom is of a version that names topics by name.
func fetchFrom(topic string, offset int64, maxBytes int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(12)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID, req.SessionEpoch = 500, 1, maxBytes, -1, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.FetchOffset, rp.PartitionMaxBytes = offset, maxBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func metadataOf(topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &t
		req.Topics = append(req.Topics, rt)
	}
	setVersion(req)
	return req
}

// sample is a request of every kind that the broker serves, about the topic
// and the group, filled so that each of its arrays has an element.
func sample(t testing.TB, key int16, topic, group string) kmsg.Request {
	t.Helper()
	name := func(s string) *string { return &s }
	req := kmsg.RequestForKey(key)
	setVersion(req)
	if d, ok := req.(interface{ Default() }); ok {
		d.Default()
	}
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		return produceOf(topic, 1, batch(t, "a", "b"))
	case *kmsg.FetchRequest:
		return fetchFrom(topic, 0, 1<<20)
	case *kmsg.ListOffsetsRequest:
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		rt.Partitions = append(rt.Partitions, kmsg.NewListOffsetsRequestTopicPartition())
		r.ReplicaID, r.Topics = -1, append(r.Topics, rt)
	case *kmsg.MetadataRequest:
		return metadataOf(topic)
	case *kmsg.LeaderAndISRRequest:
		r.BrokerEpoch, r.ControllerEpoch = -1, 1<<30
		p := kmsg.NewLeaderAndISRRequestTopicPartition()
		p.Replicas, p.ISR = []int32{0}, []int32{0}
		rt := kmsg.NewLeaderAndISRRequestTopicState()
		rt.Topic = topic
		rt.PartitionStates = append(rt.PartitionStates, p)
		l := kmsg.NewLeaderAndISRRequestLiveLeader()
		l.Host = "127.0.0.1"
		r.TopicStates, r.LiveLeaders = append(r.TopicStates, rt), append(r.LiveLeaders, l)
	case *kmsg.StopReplicaRequest:
		r.BrokerEpoch, r.ControllerEpoch = -1, 1<<30
		p := kmsg.NewStopReplicaRequestTopicPartitionState()
		p.Delete, p.LeaderEpoch = true, 1<<30
		rt := kmsg.NewStopReplicaRequestTopic()
		rt.Topic = topic
		rt.PartitionStates = append(rt.PartitionStates, p)
		r.Topics = append(r.Topics, rt)
	case *kmsg.UpdateMetadataRequest:
		r.BrokerEpoch, r.ControllerEpoch = -1, 1<<30
		p := kmsg.NewUpdateMetadataRequestTopicPartition()
		p.Leader = -2
		rt := kmsg.NewUpdateMetadataRequestTopicState()
		rt.Topic = topic
		rt.PartitionStates = append(rt.PartitionStates, p)
		e := kmsg.NewUpdateMetadataRequestLiveBrokerEndpoint()
		e.Host, e.ListenerName = "evil.test", "CLIENT"
		b := kmsg.NewUpdateMetadataRequestLiveBroker()
		b.Endpoints = append(b.Endpoints, e)
		r.TopicStates, r.LiveBrokers = append(r.TopicStates, rt), append(r.LiveBrokers, b)
	case *kmsg.ControlledShutdownRequest:
		r.BrokerEpoch = -1
	case *kmsg.OffsetCommitRequest:
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Metadata = name("m")
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = topic
		rt.Partitions = append(rt.Partitions, rp)
		r.Group, r.Generation, r.Topics = group, -1, append(r.Topics, rt)
	case *kmsg.OffsetFetchRequest:
		rt := kmsg.NewOffsetFetchRequestGroupTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics = group, append(g.Topics, rt)
		r.Groups = append(r.Groups, g)
	case *kmsg.FindCoordinatorRequest:
		r.CoordinatorKeys = []string{group}
	case *kmsg.JoinGroupRequest:
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = "range", []byte{0}
		r.Group, r.ProtocolType, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = group, "consumer", 10000, 10000
		r.Protocols = append(r.Protocols, p)
	case *kmsg.HeartbeatRequest:
		r.Group, r.MemberID = group, "m"
	case *kmsg.LeaveGroupRequest:
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = "m"
		r.Group, r.Members = group, append(r.Members, m)
	case *kmsg.SyncGroupRequest:
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = "m", []byte{0}
		r.Group, r.MemberID, r.GroupAssignment = group, "m", append(r.GroupAssignment, a)
	case *kmsg.DescribeGroupsRequest:
		r.Groups = []string{group}
	case *kmsg.ListGroupsRequest:
		r.StatesFilter = []string{"Stable"}
	case *kmsg.SASLHandshakeRequest:
		r.Mechanism = "OAUTHBEARER"
	case *kmsg.ApiVersionsRequest:
		r.ClientSoftwareName, r.ClientSoftwareVersion = "test", "1"
	case *kmsg.CreateTopicsRequest:
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "new-"+topic, 1, 1
		cfg := kmsg.NewCreateTopicsRequestTopicConfig()
		cfg.Name, cfg.Value = "retention.ms", name("1000")
		rt.Configs = append(rt.Configs, cfg)
		r.Topics, r.TimeoutMillis = append(r.Topics, rt), 5000
	case *kmsg.DeleteRecordsRequest:
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = topic
		rt.Partitions = append(rt.Partitions, kmsg.NewDeleteRecordsRequestTopicPartition())
		r.TimeoutMillis, r.Topics = 1000, append(r.Topics, rt)
	case *kmsg.AlterReplicaLogDirsRequest:
		rt := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		rd := kmsg.NewAlterReplicaLogDirsRequestDir()
		rd.Dir, rd.Topics = "/", append(rd.Topics, rt)
		r.Dirs = append(r.Dirs, rd)
	case *kmsg.DescribeLogDirsRequest:
		rt := kmsg.NewDescribeLogDirsRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		r.Topics = append(r.Topics, rt)
	case *kmsg.DeleteTopicsRequest:
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.Topic = &topic
		r.Topics, r.TimeoutMillis = append(r.Topics, rt), 5000
	case *kmsg.InitProducerIDRequest:
		r.TransactionTimeoutMillis = 1000
	case *kmsg.OffsetForLeaderEpochRequest:
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = topic
		rt.Partitions = append(rt.Partitions, rp)
		r.ReplicaID, r.Topics = -1, append(r.Topics, rt)
	case *kmsg.DescribeACLsRequest:
		r.ResourceType, r.ResourcePatternType, r.Operation, r.PermissionType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		r.ResourceName = &topic
	case *kmsg.CreateACLsRequest:
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType = kmsg.ACLResourceTypeTopic, topic, kmsg.ACLResourcePatternTypeLiteral
		c.Principal, c.Host, c.Operation, c.PermissionType = "User:nobody", "*", kmsg.ACLOperationAll, kmsg.ACLPermissionTypeAllow
		r.Creations = append(r.Creations, c)
	case *kmsg.DeleteACLsRequest:
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourcePatternType, f.Operation, f.PermissionType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		r.Filters = append(r.Filters, f)
	case *kmsg.DescribeConfigsRequest:
		r.Resources = append(r.Resources, configResource(kmsg.ConfigResourceTypeTopic, topic))
	case *kmsg.AlterConfigsRequest:
		c := kmsg.NewAlterConfigsRequestResourceConfig()
		c.Name, c.Value = "retention.ms", name("1000")
		res := kmsg.NewAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.Configs = kmsg.ConfigResourceTypeTopic, topic, append(res.Configs, c)
		r.Resources = append(r.Resources, res)
	case *kmsg.SASLAuthenticateRequest:
		r.SASLAuthBytes = bearer("a.b.c")
	case *kmsg.CreatePartitionsRequest:
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = topic, 100
		r.Topics, r.TimeoutMillis = append(r.Topics, rt), 5000
	case *kmsg.DeleteGroupsRequest:
		r.Groups = []string{group}
	case *kmsg.ElectLeadersRequest:
		rt := kmsg.NewElectLeadersRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		r.TimeoutMillis, r.Topics = 1000, append(r.Topics, rt)
	case *kmsg.AlterPartitionAssignmentsRequest:
		return moveOf(topic, 0, []int32{0})
	case *kmsg.ListPartitionReassignmentsRequest:
		rt := kmsg.NewListPartitionReassignmentsRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		r.TimeoutMillis, r.Topics = 1000, append(r.Topics, rt)
	case *kmsg.DescribeTopicPartitionsRequest:
		rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
		rt.Topic = topic
		r.Topics = append(r.Topics, rt)
	case *kmsg.IncrementalAlterConfigsRequest:
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = "retention.ms", name("1000")
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.Configs = kmsg.ConfigResourceTypeTopic, topic, append(res.Configs, c)
		r.Resources = append(r.Resources, res)
	case *kmsg.DescribeClientQuotasRequest:
		c := kmsg.NewDescribeClientQuotasRequestComponent()
		c.EntityType, c.MatchType = "user", 2
		r.Components = append(r.Components, c)
	case *kmsg.AlterClientQuotasRequest:
		return alterQuota(name("nobody"), "producer_byte_rate", 1<<40)
	case *kmsg.AlterPartitionRequest:
		p := kmsg.NewAlterPartitionRequestTopicPartition()
		p.NewISR = []int32{0}
		rt := kmsg.NewAlterPartitionRequestTopic()
		rt.Partitions = append(rt.Partitions, p)
		r.Topics = append(r.Topics, rt)
	case *kmsg.AllocateProducerIDsRequest:
		r.BrokerEpoch = -1
	case *kmsg.DescribeClusterRequest:
		r.EndpointType = 1
	default:
		if !sampleTxn(req, topic, group) {
			t.Fatalf("no sample of %T", req)
		}
	}
	return req
}

func configResource(typ kmsg.ConfigResourceType, name string) kmsg.DescribeConfigsRequestResource {
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = typ, name
	return res
}

// alterQuota sets a user's quota, the default user's for nil; 0 removes it.
func alterQuota(user *string, key string, value float64) *kmsg.AlterClientQuotasRequest {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	part := kmsg.NewAlterClientQuotasRequestEntryEntity()
	part.Type, part.Name = "user", user
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value, op.Remove = key, value, value == 0
	e := kmsg.NewAlterClientQuotasRequestEntry()
	e.Entity, e.Ops = append(e.Entity, part), append(e.Ops, op)
	req.Entries = append(req.Entries, e)
	setVersion(req)
	return req
}
