package partition

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Manager holds every replica of this broker.
type Manager struct{ cfg Config }

// Partition is one replica.
type Partition struct{ tp TopicPartition }

// NewManager opens all logs in the dirs and starts the periodic work.
func NewManager(ctx context.Context, cfg Config) (*Manager, error) { panic("unfinished") }

// Close stops the periodic work, ends the waiting operations, flushes and closes
// all logs and writes the checkpoints; an error means that the shutdown was not clean.
func (m *Manager) Close() error { panic("unfinished") }

// Append appends each entry to its partition and calls done exactly once, before
// it returns or later from another goroutine.
func (m *Manager) Append(req AppendRequest, done func([]AppendResult)) { panic("unfinished") }

// Fetch reads each part and calls done exactly once, before it returns or later
// from another goroutine.
func (m *Manager) Fetch(req FetchRequest, done func([]FetchResult)) { panic("unfinished") }

// ListOffsets answers for one timestamp.
func (m *Manager) ListOffsets(tp TopicPartition, timestamp int64, readCommitted bool, currentLeaderEpoch, replicaID int32) (OffsetResult, error) {
	panic("unfinished")
}

// EpochEndOffset answers OffsetForLeaderEpoch; -1, -1 if undefined.
func (m *Manager) EpochEndOffset(tp TopicPartition, currentLeaderEpoch, epoch int32) (foundEpoch int32, end int64, err error) {
	panic("unfinished")
}

// LeaderAndISR obeys the controller.
func (m *Manager) LeaderAndISR(req *kmsg.LeaderAndISRRequest) *kmsg.LeaderAndISRResponse {
	panic("unfinished")
}

// StopReplica obeys the controller.
func (m *Manager) StopReplica(req *kmsg.StopReplicaRequest) *kmsg.StopReplicaResponse {
	panic("unfinished")
}

// UpdateTopicConfig applies a topic's changed configuration.
func (m *Manager) UpdateTopicConfig(topic string) { panic("unfinished") }

// Partition is the replica of tp, nil if there is none.
func (m *Manager) Partition(tp TopicPartition) *Partition { panic("unfinished") }
