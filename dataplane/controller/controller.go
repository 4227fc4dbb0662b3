package controller

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Controller takes part in the election and does the controller's work while
// it has won.
type Controller struct{ cfg Config }

// New checks the config; nothing runs yet.
func New(cfg Config) (*Controller, error) {
	if cfg.ZK == nil || cfg.Dial == nil {
		return nil, errors.New("controller: ZK and Dial are required")
	}
	return &Controller{cfg: cfg}, nil
}

// Start takes part in the election. The broker must be registered.
func (c *Controller) Start(ctx context.Context) error { return nil }

// Stop resigns if need be and waits for every goroutine.
func (c *Controller) Stop() {}

// Active says whether this broker is the controller, as far as it knows.
func (c *Controller) Active() bool { return false }

// AlterPartition answers a leader's wish for another ISR (versions 0 to 3).
func (c *Controller) AlterPartition(ctx context.Context, req *kmsg.AlterPartitionRequest) *kmsg.AlterPartitionResponse {
	return nil
}

// ControlledShutdown moves leadership away from a broker that is about to stop
// and answers the partitions that it still leads.
func (c *Controller) ControlledShutdown(ctx context.Context, req *kmsg.ControlledShutdownRequest) *kmsg.ControlledShutdownResponse {
	return nil
}

// CreateTopics, DeleteTopics and CreatePartitions answer per topic. They return
// when ZooKeeper has it; see AwaitPropagated and AwaitDeleted.
func (c *Controller) CreateTopics(ctx context.Context, req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	return nil
}

// DeleteTopics marks topics for deletion, by name or by id.
func (c *Controller) DeleteTopics(ctx context.Context, req *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	return nil
}

// CreatePartitions grows topics.
func (c *Controller) CreatePartitions(ctx context.Context, req *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	return nil
}

// AwaitPropagated blocks until every live broker has been told of all leaders
// of the topics, or ctx ends.
func (c *Controller) AwaitPropagated(ctx context.Context, topics ...string) error { return nil }

// AwaitDeleted blocks until the topics are gone from the cluster, or ctx ends.
func (c *Controller) AwaitDeleted(ctx context.Context, topics ...string) error { return nil }
