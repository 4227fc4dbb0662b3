package coordination

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"penstock/dataplane/coordination/zkbulk"
	"penstock/dataplane/protocol"
)

// TopicAssignment is the content of /brokers/topics/T.
type TopicAssignment struct {
	ID         protocol.UUID     // zero when the topic was made before topic ids
	Partitions map[int32][]int32 // replicas in order of preference
	Adding     map[int32][]int32 // of a reassignment under way
	Removing   map[int32][]int32
	Version    int32 // of the znode; set by reads
}

// PartitionState is the content of /brokers/topics/T/partitions/P/state.
type PartitionState struct {
	Leader          int32 // -1: none
	LeaderEpoch     int32
	ControllerEpoch int32 // of the controller that wrote it
	ISR             []int32
	Recovering      bool  // the leader was elected uncleanly and has not recovered
	Version         int32 // of the znode: the partition epoch; set by reads
	Written         int64 // the zxid of the last write; set by reads
}

type topicJSON struct {
	Version    int                `json:"version"`
	TopicID    string             `json:"topic_id,omitempty"`
	Partitions map[string][]int32 `json:"partitions"`
	Adding     map[string][]int32 `json:"adding_replicas"`
	Removing   map[string][]int32 `json:"removing_replicas"`
}

type stateJSON struct {
	ControllerEpoch int32   `json:"controller_epoch"`
	Leader          int32   `json:"leader"`
	Version         int     `json:"version"`
	LeaderEpoch     int32   `json:"leader_epoch"`
	ISR             []int32 `json:"isr"`
	Recovery        int32   `json:"leader_recovery_state,omitempty"`
}

// NewTopicID makes a random topic id; like Kafka's it never prints with a
// leading dash, which would trouble command lines.
func NewTopicID() protocol.UUID {
	for {
		id := newUUID()
		if base64.RawURLEncoding.EncodeToString(id[:])[0] != '-' {
			return id
		}
	}
}

// TopicPath is the znode of a topic's assignment.
func TopicPath(topic string) string { return TopicsPath + "/" + topic }

func partitionsPath(topic string) string { return TopicPath(topic) + "/partitions" }

func partitionPath(tp protocol.TopicPartition) string {
	return partitionsPath(tp.Topic) + "/" + strconv.Itoa(int(tp.Partition))
}

// StatePath is the znode of a partition's leader and ISR.
func StatePath(tp protocol.TopicPartition) string { return partitionPath(tp) + "/state" }

// EncodeTopic gives the znode's JSON (version 3).
func EncodeTopic(a TopicAssignment) []byte {
	j := topicJSON{Version: 3, Partitions: byName(a.Partitions), Adding: byName(a.Adding), Removing: byName(a.Removing)}
	if a.ID != (protocol.UUID{}) {
		j.TopicID = base64.RawURLEncoding.EncodeToString(a.ID[:])
	}
	data, _ := json.Marshal(j) // maps, slices and strings always marshal
	return data
}

// ErrTooLarge means that a topic has too many replicas for one znode.
var ErrTooLarge = errors.New("coordination: a topic's assignment is larger than zookeeper takes")

// maxTopicData leaves room for the rest of a request in the 1 MiB that ZooKeeper
// takes by default (jute.maxbuffer). It ends the connection at a larger one, which
// would then be sent again, for ever.
const maxTopicData = 1_000_000

func topicData(a TopicAssignment) ([]byte, error) {
	data := EncodeTopic(a)
	if len(data) > maxTopicData {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(data))
	}
	return data, nil
}

func byName(m map[int32][]int32) map[string][]int32 {
	out := make(map[string][]int32, len(m))
	for p, rs := range m {
		out[strconv.Itoa(int(p))] = rs
	}
	return out
}

func byNumber(m map[string][]int32) (map[int32][]int32, error) {
	out := make(map[int32][]int32, len(m))
	for s, rs := range m {
		p, err := strconv.ParseInt(s, 10, 32)
		if err != nil || p < 0 {
			return nil, fmt.Errorf("bad partition %q", s)
		}
		out[int32(p)] = rs
	}
	return out, nil
}

// DecodeTopic reads the znode's JSON (versions 1 to 3).
func DecodeTopic(data []byte) (TopicAssignment, error) {
	var j topicJSON
	var a TopicAssignment
	if err := json.Unmarshal(data, &j); err != nil {
		return a, err
	}
	if j.TopicID != "" {
		id, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(j.TopicID, "="))
		if err != nil || len(id) != 16 {
			return a, fmt.Errorf("bad topic id %q", j.TopicID)
		}
		a.ID = protocol.UUID(id)
	}
	var errs [3]error
	a.Partitions, errs[0] = byNumber(j.Partitions)
	a.Adding, errs[1] = byNumber(j.Adding)
	a.Removing, errs[2] = byNumber(j.Removing)
	return a, errors.Join(errs[:]...)
}

// EncodeState gives the znode's JSON (version 1).
func EncodeState(s PartitionState) []byte {
	j := stateJSON{ControllerEpoch: s.ControllerEpoch, Leader: s.Leader, Version: 1, LeaderEpoch: s.LeaderEpoch, ISR: s.ISR}
	if j.ISR == nil {
		j.ISR = []int32{}
	}
	if s.Recovering {
		j.Recovery = 1
	}
	data, _ := json.Marshal(j)
	return data
}

// DecodeState reads the znode's JSON.
func DecodeState(data []byte) (PartitionState, error) {
	var j stateJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return PartitionState{}, err
	}
	return PartitionState{Leader: j.Leader, LeaderEpoch: j.LeaderEpoch, ControllerEpoch: j.ControllerEpoch, ISR: j.ISR, Recovering: j.Recovery == 1}, nil
}

// Topics lists the topics. It arms the children watch of TopicsPath.
func (c *Client) Topics(ctx context.Context) ([]string, error) {
	names, err := c.Children(ctx, TopicsPath)
	slices.Sort(names)
	return names, err
}

// Topic reads one topic's assignment; ErrNoNode when it does not exist. It arms
// the data watch of TopicPath.
func (c *Client) Topic(ctx context.Context, name string) (TopicAssignment, error) {
	data, st, err := c.Get(ctx, TopicPath(name))
	if err != nil {
		return TopicAssignment{}, err
	}
	a, err := DecodeTopic(data)
	if err != nil {
		return a, fmt.Errorf("coordination: topic %s: %w", name, err)
	}
	a.Version = st.Version
	return a, nil
}

// TopicAssignments reads many topics; those that do not exist are left out.
func (c *Client) TopicAssignments(ctx context.Context, names []string) (map[string]TopicAssignment, error) {
	return readAll(ctx, names, c.Topic)
}

// readAll reads one thing for each key, several at once; keys whose znode is
// missing are left out.
func readAll[K comparable, V any](ctx context.Context, keys []K, read func(context.Context, K) (V, error)) (map[K]V, error) {
	var mu sync.Mutex
	out := make(map[K]V, len(keys))
	err := parallel(ctx, len(keys), func(ctx context.Context, i int) error {
		v, err := read(ctx, keys[i])
		if errors.Is(err, ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		out[keys[i]] = v
		return nil
	})
	return out, err
}

// PartitionState reads one partition's state; ErrNoNode when it has none yet.
func (c *Client) PartitionState(ctx context.Context, tp protocol.TopicPartition) (PartitionState, error) {
	data, st, err := c.Get(ctx, StatePath(tp))
	if err != nil {
		return PartitionState{}, err
	}
	s, err := DecodeState(data)
	if err != nil {
		return s, fmt.Errorf("coordination: state of %s: %w", tp, err)
	}
	s.Version, s.Written = st.Version, st.Mzxid
	return s, nil
}

// bulkFrom is how many states are worth a connection of their own.
const bulkFrom = 200

// PartitionStates reads many states; partitions without one are left out. What anybody has
// written before the call is in them.
func (c *Client) PartitionStates(ctx context.Context, tps []protocol.TopicPartition) (map[protocol.TopicPartition]PartitionState, error) {
	if len(tps) < bulkFrom {
		return readAll(ctx, tps, c.PartitionState)
	}
	out, err := c.bulkStates(ctx, tps)
	if err == nil || ctx.Err() != nil {
		return out, err
	}
	c.log.Warn("many states cannot be read at once, and are read one by one", "states", len(tps), "err", err)
	return readAll(ctx, tps, c.PartitionState)
}

func (c *Client) bulkStates(ctx context.Context, tps []protocol.TopicPartition) (map[protocol.TopicPartition]PartitionState, error) {
	s, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	cfg := zkbulk.Config{Servers: c.servers, Digest: c.cfg.Digest}
	if at := s.conn.Server(); at != "" { // the nearest to what has just been written, most likely
		cfg.Servers = append([]string{at}, c.servers...)
	}
	paths := make([]string, len(tps))
	for i, tp := range tps {
		paths[i] = c.full(StatePath(tp))
	}
	out := make(map[protocol.TopicPartition]PartitionState, len(tps))
	err = zkbulk.Read(ctx, cfg, paths, func(i int, data []byte, st zkbulk.Stat, err error) error {
		if err != nil {
			return nil // it has none
		}
		s, err := DecodeState(data)
		if err != nil {
			return fmt.Errorf("coordination: state of %s: %w", tps[i], err)
		}
		s.Version, s.Written = st.Version, st.Mzxid
		out[tps[i]] = s
		return nil
	})
	return out, err
}

// CreateTopic writes a new topic's config and then its assignment, which is
// what the controller watches. ErrNodeExists when the topic is there already,
// ErrTooLarge when it has too many replicas.
func (c *Client) CreateTopic(ctx context.Context, f Fence, name string, a TopicAssignment, config map[string]string) error {
	data, err := topicData(a)
	if err != nil {
		return err
	}
	if st, err := c.Exists(ctx, TopicPath(name)); err != nil {
		return err
	} else if st != nil {
		return ErrNodeExists
	}
	// The config of an earlier topic of that name must not live on.
	if err := c.setTopicConfig(ctx, f, name, config); err != nil {
		return err
	}
	_, err = c.Fenced(ctx, f, CreateOp(TopicPath(name), data))
	if errors.Is(err, ErrNodeExists) {
		// A repeated request whose first reply was lost finds its own topic.
		if now, err := c.Topic(ctx, name); err == nil && now.ID == a.ID && a.ID != (protocol.UUID{}) {
			return nil
		}
	}
	return err
}

// setTopicConfig is SetConfig bound to the election.
func (c *Client) setTopicConfig(ctx context.Context, f Fence, name string, config map[string]string) error {
	path := "/config/topics/" + name
	data := encodeConfig(config)
	for {
		_, err := c.Fenced(ctx, f, CreateOp(path, data))
		if errors.Is(err, ErrNodeExists) {
			_, err = c.Fenced(ctx, f, SetOp(path, data, -1))
			if errors.Is(err, ErrNoNode) {
				continue
			}
		}
		if err != nil {
			return err
		}
		return c.notifyConfig(ctx, "topics/"+name)
	}
}

// SetTopic replaces a topic's assignment if the znode has a.Version; ErrTooLarge as
// with CreateTopic.
func (c *Client) SetTopic(ctx context.Context, f Fence, name string, a TopicAssignment) error {
	data, err := topicData(a)
	if err != nil {
		return err
	}
	_, err = c.Fenced(ctx, f, SetOp(TopicPath(name), data, a.Version))
	return err
}

// StateWrite is one partition's new state. For a state that exists State.Version
// is the version that it must have now.
type StateWrite struct {
	TP    protocol.TopicPartition
	State PartitionState
}

// CreateStates makes the state znodes of new partitions. The result has an
// error for each that could not be made, ErrNodeExists among them. The second
// result is not nil when nothing more can be written: ErrControllerMoved, the
// session's end, ctx.
func (c *Client) CreateStates(ctx context.Context, f Fence, ws []StateWrite) ([]error, error) {
	topics := map[string]bool{}
	for _, w := range ws {
		topics[w.TP.Topic] = true
	}
	names := slices.Sorted(maps.Keys(topics))
	err := parallel(ctx, len(names), func(ctx context.Context, i int) error {
		_, err := c.Fenced(ctx, f, CreateOp(partitionsPath(names[i]), nil))
		if errors.Is(err, ErrNodeExists) || errors.Is(err, ErrNoNode) {
			return nil // with the topic gone the next step says so for each partition
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.writeStates(ctx, f, ws, func(w *StateWrite) []Op {
		return []Op{CreateOp(partitionPath(w.TP), nil), CreateOp(StatePath(w.TP), EncodeState(w.State))}
	}, func(ctx context.Context, w *StateWrite, ops []Op) error {
		_, err := c.Fenced(ctx, f, ops...)
		if errors.Is(err, ErrNodeExists) { // the folder may be there without the state
			_, err = c.Fenced(ctx, f, ops[1])
		}
		w.State.Version = 0
		return err
	}, func(w *StateWrite, _ []*Stat) { w.State.Version = 0 })
}

// UpdateStates writes new states; each w.State.Version becomes the new one on
// success. The errors are as with CreateStates, ErrBadVersion among them.
func (c *Client) UpdateStates(ctx context.Context, f Fence, ws []StateWrite) ([]error, error) {
	written := func(w *StateWrite, stats []*Stat) { w.State.Version = stats[0].Version }
	return c.writeStates(ctx, f, ws, func(w *StateWrite) []Op {
		return []Op{SetOp(StatePath(w.TP), EncodeState(w.State), w.State.Version)}
	}, func(ctx context.Context, w *StateWrite, ops []Op) error {
		stats, err := c.Fenced(ctx, f, ops...)
		if err == nil {
			written(w, stats)
		}
		return err
	}, written)
}

// statesAtOnce is how many states one request to ZooKeeper writes: some 20 KB of the 1 MB
// that it may have.
const statesAtOnce = 50

// writeStates makes all of ops' writes, many in one request. Where one of those cannot be
// done none of its request is, and one writes each by itself. The errors are
// sorted: those of the one partition, and those that end everything.
func (c *Client) writeStates(ctx context.Context, f Fence, ws []StateWrite, ops func(*StateWrite) []Op,
	one func(context.Context, *StateWrite, []Op) error, written func(*StateWrite, []*Stat)) ([]error, error) {
	errs := make([]error, len(ws))
	err := parallel(ctx, (len(ws)+statesAtOnce-1)/statesAtOnce, func(ctx context.Context, i int) error {
		first := i * statesAtOnce
		some := ws[first:min(first+statesAtOnce, len(ws))]
		var all []Op
		for j := range some {
			all = append(all, ops(&some[j])...)
		}
		stats, err := c.Fenced(ctx, f, all...)
		if err == nil {
			each := len(all) / len(some)
			for j := range some {
				written(&some[j], stats[j*each:(j+1)*each])
			}
			return nil
		}
		var me *MultiError
		if !errors.As(err, &me) {
			return err
		}
		for j := range some {
			err := one(ctx, &some[j], ops(&some[j]))
			switch {
			case errors.Is(err, ErrNodeExists), errors.Is(err, ErrNoNode), errors.Is(err, ErrBadVersion):
				errs[first+j] = err
			case err != nil:
				return err
			}
		}
		return nil
	})
	return errs, err
}

// MarkForDeletion asks for a topic's deletion.
func (c *Client) MarkForDeletion(ctx context.Context, f Fence, topic string) error {
	_, err := c.Fenced(ctx, f, CreateOp(DeleteTopicsPath+"/"+topic, nil))
	return err
}

// TopicsToDelete lists the topics marked for deletion. It arms the children
// watch of DeleteTopicsPath.
func (c *Client) TopicsToDelete(ctx context.Context) ([]string, error) {
	names, err := c.Children(ctx, DeleteTopicsPath)
	slices.Sort(names)
	return names, err
}

// RemoveTopic removes all znodes of a topic, its config, and last its mark for
// deletion, so that a removal that was broken off is taken up again.
func (c *Client) RemoveTopic(ctx context.Context, f Fence, topic string) error {
	for _, root := range []string{TopicPath(topic), "/config/topics/" + topic, DeleteTopicsPath + "/" + topic} {
		if err := c.removeTree(ctx, f, root); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) removeTree(ctx context.Context, f Fence, path string) error {
	kids, err := c.Children(ctx, path)
	if errors.Is(err, ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, k := range kids {
		if err := c.removeTree(ctx, f, path+"/"+k); err != nil {
			return err
		}
	}
	_, err = c.Fenced(ctx, f, DeleteOp(path, -1))
	if errors.Is(err, ErrNoNode) {
		return nil
	}
	return err
}
