package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"penstock/dataplane/protocol"
)

// ReassignPath is where tools from before KIP-455 leave their wishes.
const ReassignPath = "/admin/reassign_partitions"

// Assignment is one partition's replicas in order of preference, and those of
// them that a reassignment adds and removes.
type Assignment struct{ Replicas, Adding, Removing []int32 }

// Of is the assignment of one partition.
func (a TopicAssignment) Of(partition int32) Assignment {
	return Assignment{a.Partitions[partition], a.Adding[partition], a.Removing[partition]}
}

func (a Assignment) equal(b Assignment) bool {
	return slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.Adding, b.Adding) && slices.Equal(a.Removing, b.Removing)
}

// Reassign writes the assignments of some partitions and leaves the others of
// their topics as they are, whoever writes those at the same time. Topics and
// partitions that are no longer there are left out. If one of the znodes would be
// too large (ErrTooLarge), none is written.
func (c *Client) Reassign(ctx context.Context, f Fence, parts map[protocol.TopicPartition]Assignment) error {
	byTopic := map[string]map[int32]Assignment{}
	for tp, a := range parts {
		if byTopic[tp.Topic] == nil {
			byTopic[tp.Topic] = map[int32]Assignment{}
		}
		byTopic[tp.Topic][tp.Partition] = a
	}
	names := slices.Sorted(maps.Keys(byTopic))
	next := make([]*TopicAssignment, len(names)) // nil: nothing to write
	err := parallel(ctx, len(names), func(ctx context.Context, i int) (err error) {
		next[i], err = c.reassigned(ctx, names[i], byTopic[names[i]])
		return err
	})
	if err != nil {
		return err
	}
	return parallel(ctx, len(names), func(ctx context.Context, i int) error {
		for next[i] != nil {
			err := c.SetTopic(ctx, f, names[i], *next[i])
			if !errors.Is(err, ErrBadVersion) && !errors.Is(err, ErrNoNode) {
				return err
			}
			// Either our own write, whose reply was lost, or somebody else's.
			if next[i], err = c.reassigned(ctx, names[i], byTopic[names[i]]); err != nil {
				return err
			}
		}
		return nil
	})
}

// reassigned is what a topic's znode has to become, nil if it is that already or
// gone.
func (c *Client) reassigned(ctx context.Context, topic string, parts map[int32]Assignment) (*TopicAssignment, error) {
	a, err := c.Topic(ctx, topic)
	if errors.Is(err, ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	changed := false
	for i, want := range parts {
		if _, ok := a.Partitions[i]; !ok || a.Of(i).equal(want) {
			continue
		}
		changed = true
		a.Partitions[i] = want.Replicas
		put(a.Adding, i, want.Adding)
		put(a.Removing, i, want.Removing)
	}
	if !changed {
		return nil, nil
	}
	_, err = topicData(a)
	return &a, err
}

func put(m map[int32][]int32, partition int32, replicas []int32) {
	if len(replicas) == 0 {
		delete(m, partition)
		return
	}
	m[partition] = replicas
}

type wishJSON struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Replicas  []int32 `json:"replicas"`
}

type wishesJSON struct {
	Version    int        `json:"version"`
	Partitions []wishJSON `json:"partitions"`
}

// AskedReassignments reads what older tools ask for: the new replicas of each
// partition, and the znode's version. ErrNoNode when they ask for nothing; a
// znode that makes no sense asks for no partition. It arms the data watch of
// ReassignPath.
func (c *Client) AskedReassignments(ctx context.Context) (map[protocol.TopicPartition][]int32, int32, error) {
	data, st, err := c.Get(ctx, ReassignPath)
	if err != nil {
		return nil, 0, err
	}
	var j wishesJSON
	if err := json.Unmarshal(data, &j); err != nil {
		c.log.Error("the znode of asked reassignments makes no sense", "path", ReassignPath, "err", err)
	}
	asked := map[protocol.TopicPartition][]int32{}
	for _, w := range j.Partitions {
		asked[protocol.TopicPartition{Topic: w.Topic, Partition: w.Partition}] = w.Replicas
	}
	return asked, st.Version, nil
}

// SetAskedReassignments replaces what AskedReassignments has read; with nothing
// left the znode goes. ErrBadVersion or ErrNoNode when somebody else was faster.
func (c *Client) SetAskedReassignments(ctx context.Context, f Fence, asked map[protocol.TopicPartition][]int32, version int32) error {
	if len(asked) == 0 {
		_, err := c.Fenced(ctx, f, DeleteOp(ReassignPath, version))
		return err
	}
	_, err := c.Fenced(ctx, f, SetOp(ReassignPath, encodeAsked(asked), version))
	return err
}

func encodeAsked(asked map[protocol.TopicPartition][]int32) []byte {
	j := wishesJSON{Version: 1, Partitions: []wishJSON{}}
	for tp, rs := range asked {
		j.Partitions = append(j.Partitions, wishJSON{tp.Topic, tp.Partition, rs})
	}
	data, _ := json.Marshal(j)
	return data
}
