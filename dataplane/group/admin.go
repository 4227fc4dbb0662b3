package group

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// groupType is what ListGroups calls the groups of this protocol (KIP-848).
const groupType = "classic"

// Describe handles DescribeGroups (versions 0 to 6); done is called before it
// returns. A group that does not exist is Dead, without an error before version 6
// (KIP-1043). The authorized operations are left to the caller.
func (c *Coordinator) Describe(req *kmsg.DescribeGroupsRequest, done func(*kmsg.DescribeGroupsResponse)) {
	resp := kmsg.NewPtrDescribeGroupsResponse()
	resp.Version = req.Version
	for _, id := range req.Groups {
		d := kmsg.NewDescribeGroupsResponseGroup()
		var missing *kerr.Error
		err := c.with(id, false, func(g *group, _ *effects) {
			if g == nil || g.consumer != nil { // a consumer group has a request of its own
				d.State = stateDead.String()
				if req.Version >= 6 {
					missing = kerr.GroupIDNotFound
				}
				return
			}
			g.describe(&d)
		})
		if err == nil {
			err = missing
		}
		d.Group, d.ErrorCode = id, code(err)
		if err != nil {
			d.ErrorMessage = &err.Description
		}
		resp.Groups = append(resp.Groups, d)
	}
	done(resp)
}

func (g *group) describe(d *kmsg.DescribeGroupsResponseGroup) {
	d.State = g.state.String()
	d.ProtocolType = g.protocolType
	stable := g.state == stateStable
	if stable {
		d.Protocol = str(g.protocol)
	}
	for _, m := range g.order {
		dm := kmsg.NewDescribeGroupsResponseGroupMember()
		dm.MemberID, dm.InstanceID, dm.ClientID, dm.ClientHost = m.id, m.instanceID, m.clientID, m.host
		if stable { // else what they know of each other is about to change
			dm.ProtocolMetadata, dm.MemberAssignment = m.metadata(d.Protocol), m.assignment
		}
		d.Members = append(d.Members, dm)
	}
}

// List handles ListGroups (versions 0 to 5): the groups that this broker
// coordinates, ordered by id; done is called before it returns. While a
// partition is being loaded the answer is incomplete and says so by its error.
func (c *Coordinator) List(req *kmsg.ListGroupsRequest, done func(*kmsg.ListGroupsResponse)) {
	resp := kmsg.NewPtrListGroupsResponse()
	resp.Version = req.Version
	groups, loading := c.shards.All()
	if loading {
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
	}
	in := func(filter []string, v string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, v) })
	}
	slices.SortFunc(groups, byID)
	for _, g := range groups {
		l := kmsg.NewListGroupsResponseGroup()
		l.Group = g.id
		g.mu.Lock()
		dead := g.state == stateDead
		l.GroupType, l.GroupState, l.ProtocolType = g.listed()
		g.mu.Unlock()
		if !dead && in(req.TypesFilter, l.GroupType) && in(req.StatesFilter, l.GroupState) {
			resp.Groups = append(resp.Groups, l)
		}
	}
	done(resp)
}

// Delete handles DeleteGroups (versions 0 to 3). done is called exactly once,
// when the tombstones of all groups and offsets are stored; a group whose
// tombstones could not be stored lives on and says so.
func (c *Coordinator) Delete(req *kmsg.DeleteGroupsRequest, done func(*kmsg.DeleteGroupsResponse)) {
	resp := kmsg.NewPtrDeleteGroupsResponse()
	resp.Version = req.Version
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(req.Groups))
	var mu sync.Mutex
	open := len(req.Groups) + 1 // this loop counts too: done must not come before its end
	settle := func(i int, err *kerr.Error) {
		mu.Lock()
		if i >= 0 {
			resp.Groups[i].ErrorCode = code(err)
		}
		open--
		last := open == 0
		mu.Unlock()
		if last {
			done(resp)
		}
	}
	for i, id := range req.Groups {
		resp.Groups[i] = kmsg.NewDeleteGroupsResponseGroup()
		resp.Groups[i].Group = id
		err := c.with(id, false, func(g *group, fx *effects) {
			if g == nil {
				settle(i, kerr.GroupIDNotFound)
				return
			}
			g.delete(fx, func(err *kerr.Error) { settle(i, err) })
		})
		if err != nil {
			settle(i, err)
		}
	}
	settle(-1, nil)
}

// delete writes the tombstones of all that the log knows of the group.
func (g *group) delete(fx *effects, done func(*kerr.Error)) {
	switch {
	case g.deleting:
		fx.call(func() { done(kerr.CoordinatorNotAvailable) })
		return
	case !g.memberless():
		fx.call(func() { done(kerr.NonEmptyGroup) })
		return
	}
	now := time.Now().UnixMilli()
	tps := make(map[protocol.TopicPartition]bool)
	g.offsets.each(func(topic string, o *offset) {
		tps[protocol.TopicPartition{Topic: topic, Partition: o.partition}] = true
	})
	for tp := range g.inFlight { // their records come before the tombstones
		tps[tp] = true
	}
	for tp := range g.doubtful {
		tps[tp] = true
	}
	for tp := range g.unstable {
		tps[tp] = true
	}
	recs := make([]coordinator.Record, 0, len(tps)+1)
	for tp := range tps {
		recs = append(recs, coordinator.Record{Timestamp: now, Key: offsetRecordKey(g.id, tp.Topic, tp.Partition)})
	}
	recs = append(recs, coordinator.Record{Timestamp: now, Key: groupRecordKey(g.id)})
	recs = append(recs, g.consumerTombstones()...)
	g.deleting = true
	g.append(fx, recs, func(fx *effects, err error) {
		g.deleting = false
		if err == nil && g.state != stateDead {
			g.kill(fx)
		}
		fx.call(func() { done(deleteError(err)) })
	})
}
