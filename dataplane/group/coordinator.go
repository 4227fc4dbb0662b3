package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// Coordinator is the broker's part of all groups.
type Coordinator struct {
	cfg    Config
	st     Storage
	timers Timers
}

// New returns a coordinator that owns no partition yet. Close must be called.
func New(cfg Config, st Storage, timers Timers) *Coordinator {
	return &Coordinator{cfg: cfg.withDefaults(), st: st, timers: timers}
}

func (c *Coordinator) Close() {}

func (c *Coordinator) PartitionOf(group string) int32 { return 0 }

func (c *Coordinator) OnLeader(partition, epoch int32) {}
func (c *Coordinator) OnResign(partition, epoch int32) {}

// OnPartitionsDeleted forgets the offsets committed for partitions of deleted topics.
func (c *Coordinator) OnPartitionsDeleted(tps []protocol.TopicPartition) {}

func (c *Coordinator) Join(ci ClientInfo, req *kmsg.JoinGroupRequest, done func(*kmsg.JoinGroupResponse)) {
}
func (c *Coordinator) Sync(req *kmsg.SyncGroupRequest, done func(*kmsg.SyncGroupResponse))         {}
func (c *Coordinator) Heartbeat(req *kmsg.HeartbeatRequest, done func(*kmsg.HeartbeatResponse))    {}
func (c *Coordinator) Leave(req *kmsg.LeaveGroupRequest, done func(*kmsg.LeaveGroupResponse))      {}
func (c *Coordinator) Commit(req *kmsg.OffsetCommitRequest, done func(*kmsg.OffsetCommitResponse)) {}
func (c *Coordinator) Fetch(req *kmsg.OffsetFetchRequest, done func(*kmsg.OffsetFetchResponse))    {}
func (c *Coordinator) Describe(req *kmsg.DescribeGroupsRequest, done func(*kmsg.DescribeGroupsResponse)) {
}
func (c *Coordinator) List(req *kmsg.ListGroupsRequest, done func(*kmsg.ListGroupsResponse))       {}
func (c *Coordinator) Delete(req *kmsg.DeleteGroupsRequest, done func(*kmsg.DeleteGroupsResponse)) {}
