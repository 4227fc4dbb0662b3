package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/group/assignor"
)

// What ConsumerGroupDescribe says of how a member speaks (KIP-1099).
const (
	memberTypeClassic  = 0
	memberTypeConsumer = 1
)

// DescribeConsumer handles ConsumerGroupDescribe (KIP-848; versions 0 and 1); done is
// called before it returns. A group that does not exist or is none of this protocol is
// GROUP_ID_NOT_FOUND. What the caller may see is left to the caller.
func (c *Coordinator) DescribeConsumer(req *kmsg.ConsumerGroupDescribeRequest, done func(*kmsg.ConsumerGroupDescribeResponse)) {
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	resp.Version = req.Version
	for _, id := range req.Groups {
		d := kmsg.NewConsumerGroupDescribeResponseGroup()
		d.Group = id
		refused := func(r *refusal) {
			d.ErrorCode = r.err.Code
			if r.text != "" {
				d.ErrorMessage = &r.text
			}
		}
		if id == "" {
			refused(refuse(kerr.InvalidGroupID, ""))
			resp.Groups = append(resp.Groups, d)
			continue
		}
		err := c.with(id, false, func(g *group, _ *effects) {
			switch {
			case g == nil:
				refused(refuse(kerr.GroupIDNotFound, "Group %s not found.", id))
			case g.consumer == nil:
				refused(refuse(kerr.GroupIDNotFound, "Group %s is not a consumer group.", id))
			default:
				g.describeConsumer(&d)
			}
		})
		if err != nil {
			refused(&refusal{err: err})
		}
		resp.Groups = append(resp.Groups, d)
	}
	done(resp)
}

func (g *group) describeConsumer(d *kmsg.ConsumerGroupDescribeResponseGroup) {
	cg := g.consumer
	d.State, d.Epoch, d.AssignmentEpoch, d.AssignorName = cg.stateName(), cg.epoch, cg.assigned, g.preferredAssignor()
	topics := g.c.cfg.Topics()
	for _, m := range cg.sortedMembers() {
		dm := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		dm.MemberID, dm.InstanceID, dm.RackID, dm.MemberEpoch = m.id, m.instance, m.rack, m.epoch
		dm.ClientID, dm.ClientHost = m.clientID, m.host
		dm.SubscribedTopics = m.names
		dm.SubscribedTopicRegex = &m.regex // "" for none, as Kafka has it
		dm.Assignment.TopicPartitions = named(m.has.partitions(), topics)
		dm.TargetAssignment.TopicPartitions = named(cg.target[m.id], topics)
		dm.MemberType = memberTypeConsumer
		if m.classic != nil {
			dm.MemberType = memberTypeClassic
		}
		d.Members = append(d.Members, dm)
	}
}

// named gives the topics their names and leaves out those that are gone.
func named(a assignor.Assignment, topics Topics) []kmsg.AssignmentTopicPartition {
	var out []kmsg.AssignmentTopicPartition
	for _, id := range sortedIDs(a) {
		if topics == nil {
			break
		}
		if name, ok := topics.Name(id); ok {
			tp := kmsg.NewAssignmentTopicPartition()
			tp.TopicID, tp.Topic, tp.Partitions = id, name, a[id]
			out = append(out, tp)
		}
	}
	return out
}

// listed is what ListGroups says of the group.
func (g *group) listed() (kind, state, protocolType string) {
	if g.consumer != nil {
		return consumerType, g.consumer.stateName(), consumerProtocolType
	}
	return groupType, g.state.String(), g.protocolType
}
