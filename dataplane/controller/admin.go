package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"penstock/dataplane/coordination"
	"penstock/dataplane/protocol"
	"penstock/tenants"
)

// refuse makes an error with the wire's code and a text for the client.
func refuse(code *kerr.Error, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

type refusal struct {
	code *kerr.Error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.code }

// message is the text for the client, nil without an error.
func message(err error) *string { return protocol.Message(err) }

// snapshot is what the admin calls need from the loop; they do their own
// writing, so that the loop does not wait for them.
type snapshot struct {
	t       *term
	fence   coordination.Fence
	brokers []placement
	topics  map[string]topicInfo
	names   map[protocol.UUID]string // of the ids asked for
	placed  int                      // new partitions that the request has made so far
	dotted  map[string]string        // names with dots as underscores, of all topics; nil unless asked for
}

type topicInfo struct {
	id       protocol.UUID
	deleting bool
	parts    [][]int32
	regular  bool // the partitions are numbered without a gap
}

// look takes a snapshot of the brokers and of the named topics.
func (c *Controller) look(ctx context.Context, names []string, ids []protocol.UUID, collisions bool) (*snapshot, error) {
	s := &snapshot{topics: map[string]topicInfo{}, names: map[protocol.UUID]string{}}
	err := c.call(ctx, func(t *term) error {
		s.t, s.fence = t, t.fence
		for _, id := range t.st.ids() {
			if t.st.live(id) {
				s.brokers = append(s.brokers, placement{id, t.st.brokers[id].Rack})
			}
		}
		for _, id := range ids {
			if name, ok := t.st.names[id]; ok {
				s.names[id] = name
				names = append(names, name)
			}
		}
		for _, name := range names {
			tc := t.st.topics[name]
			if tc == nil {
				continue
			}
			info := topicInfo{id: tc.id, deleting: tc.deleting, regular: true}
			for i, p := range tc.sorted() {
				info.parts = append(info.parts, p.replicas)
				info.regular = info.regular && p.tp.Partition == int32(i)
			}
			s.topics[name] = info
		}
		if collisions {
			s.dotted = make(map[string]string, len(t.st.topics))
			for name := range t.st.topics {
				s.dotted[tenants.TopicCollisionKey(name)] = name
			}
		}
		return nil
	})
	return s, err
}

// tooWide answers a request whose topic does not fit into its znode.
var tooWide = refuse(kerr.InvalidPartitions, "the topic's assignment would be larger than the 1 MB that ZooKeeper takes: use fewer partitions or replicas, or move them in parts")

// ended turns an error of ZooKeeper during an admin call into the wire's.
func (c *Controller) ended(err error) error {
	var ke *kerr.Error
	switch {
	case err == nil, errors.As(err, &ke):
		return err
	case errors.Is(err, coordination.ErrControllerMoved), errors.Is(err, coordination.ErrExpired), errors.Is(err, coordination.ErrClosed):
		c.queue.post("elect", c.elect)
		return kerr.NotController
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return kerr.RequestTimedOut
	case errors.Is(err, coordination.ErrTooLarge):
		return tooWide
	}
	c.log.Error("topic administration failed", "err", err)
	return err
}

// CreateTopics creates topics (versions 0 to 7) and returns when ZooKeeper has
// them; a client may be answered after AwaitPropagated. One topic's error does
// not touch the others.
//
// Errors: NOT_CONTROLLER, INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS,
// INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT,
// INVALID_CONFIG, INVALID_REQUEST, REQUEST_TIMED_OUT when ctx ends.
func (c *Controller) CreateTopics(ctx context.Context, req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	var names []string
	times := map[string]int{}
	for _, rt := range req.Topics {
		names = append(names, rt.Topic)
		times[rt.Topic]++
	}
	s, err := c.look(ctx, names, nil, true)
	var todo []*newTopic
	done := map[string]bool{}
	for i := range req.Topics {
		rt := &req.Topics[i]
		if done[rt.Topic] {
			continue // said once
		}
		done[rt.Topic] = true
		n := &newTopic{out: kmsg.NewCreateTopicsResponseTopic()}
		n.out.Topic = rt.Topic
		switch {
		case err != nil:
			n.err = c.ended(err)
		case times[rt.Topic] > 1:
			n.err = refuse(kerr.InvalidRequest, "topic %q is named more than once", rt.Topic)
		default:
			n.err = c.planTopic(s, rt, n)
		}
		todo = append(todo, n)
	}
	if err == nil && !req.ValidateOnly {
		c.writeTopics(ctx, s, todo)
	}
	for _, n := range todo {
		n.out.ErrorCode, n.out.ErrorMessage = protocol.Code(n.err), message(n.err)
		if n.err != nil {
			n.out.NumPartitions, n.out.ReplicationFactor, n.out.TopicID, n.out.Configs = -1, -1, protocol.UUID{}, nil
		}
		resp.Topics = append(resp.Topics, n.out)
	}
	return resp
}

// newTopic is one of a request.
type newTopic struct {
	out        kmsg.CreateTopicsResponseTopic
	err        error
	assignment coordination.TopicAssignment
	overrides  map[string]string
}

// topicsAtOnce is how many topics of a request are written to ZooKeeper side by side.
const topicsAtOnce = 16

// writeTopics makes those that could be planned.
func (c *Controller) writeTopics(ctx context.Context, s *snapshot, todo []*newTopic) {
	// Two requests for one name at a time would write each other's config.
	c.adminMu.Lock()
	defer c.adminMu.Unlock()
	var g errgroup.Group
	g.SetLimit(topicsAtOnce)
	for _, n := range todo {
		if n.err != nil {
			continue
		}
		g.Go(func() error {
			err := c.cfg.ZK.CreateTopic(ctx, s.fence, n.out.Topic, n.assignment, n.overrides)
			if errors.Is(err, coordination.ErrNodeExists) {
				err = refuse(kerr.TopicAlreadyExists, "topic %q is there already", n.out.Topic)
			}
			if n.err = c.ended(err); n.err == nil {
				n.out.TopicID = n.assignment.ID
			}
			return nil
		})
	}
	_ = g.Wait() // each has its own error
	s.t.post("topics", s.t.topicsChanged)
}

// planTopic checks what is asked for, and chooses what is not.
func (c *Controller) planTopic(s *snapshot, rt *kmsg.CreateTopicsRequestTopic, n *newTopic) error {
	if err := tenants.CheckTopicName(rt.Topic); err != nil {
		return refuse(kerr.InvalidTopicException, "%s", err)
	}
	if info, ok := s.topics[rt.Topic]; ok {
		if info.deleting {
			return refuse(kerr.TopicAlreadyExists, "topic %q is being deleted", rt.Topic)
		}
		return refuse(kerr.TopicAlreadyExists, "topic %q is there already", rt.Topic)
	}
	if other, ok := s.dotted[tenants.TopicCollisionKey(rt.Topic)]; ok {
		return refuse(kerr.InvalidTopicException, "topic %q differs from topic %q only in dots and underscores, which are one and the same in metrics", rt.Topic, other)
	}
	overrides := map[string]string{}
	for _, kv := range rt.Configs {
		if kv.Value == nil {
			return refuse(kerr.InvalidConfig, "setting %s has no value", kv.Name)
		}
		overrides[kv.Name] = *kv.Value
	}
	if c.cfg.ValidateConfig != nil {
		if err := c.cfg.ValidateConfig(overrides); err != nil {
			return refuse(kerr.InvalidConfig, "%s", err)
		}
	}
	parts, err := c.place(s, rt)
	if err != nil {
		return err
	}
	a := coordination.TopicAssignment{ID: coordination.NewTopicID(), Partitions: map[int32][]int32{}}
	for i, rs := range parts {
		a.Partitions[int32(i)] = rs
	}
	n.assignment, n.overrides = a, overrides
	n.out.NumPartitions, n.out.ReplicationFactor = int32(len(parts)), int16(len(parts[0]))
	if c.cfg.DescribeConfig != nil {
		n.out.Configs = c.cfg.DescribeConfig(rt.Topic, overrides)
	}
	s.dotted[tenants.TopicCollisionKey(rt.Topic)] = rt.Topic // for the rest of this request
	return nil
}

// place chooses the replicas of a new topic, or checks those that were given.
func (c *Controller) place(s *snapshot, rt *kmsg.CreateTopicsRequestTopic) ([][]int32, error) {
	if len(rt.ReplicaAssignment) > 0 {
		if rt.NumPartitions != -1 || rt.ReplicationFactor != -1 {
			return nil, refuse(kerr.InvalidRequest, "either numbers of partitions and replicas or an assignment can be given, not both")
		}
		parts := make([][]int32, len(rt.ReplicaAssignment))
		for _, ra := range rt.ReplicaAssignment {
			if ra.Partition < 0 || int(ra.Partition) >= len(parts) || parts[ra.Partition] != nil {
				return nil, refuse(kerr.InvalidReplicaAssignment, "the assigned partitions must be numbered from 0 on, each once")
			}
			if len(ra.Replicas) == 0 {
				return nil, refuse(kerr.InvalidReplicaAssignment, "partition %d is given no replica", ra.Partition)
			}
			parts[ra.Partition] = ra.Replicas
		}
		if err := c.room(s, len(parts)); err != nil {
			return nil, err
		}
		return parts, checkReplicas(s.brokers, parts, len(parts[0]))
	}
	count, factor := rt.NumPartitions, rt.ReplicationFactor
	if count == -1 {
		count = c.cfg.NumPartitions
	}
	if factor == -1 {
		factor = c.cfg.ReplicationFactor
	}
	switch {
	case count <= 0:
		return nil, refuse(kerr.InvalidPartitions, "a topic has at least one partition")
	case factor <= 0:
		return nil, refuse(kerr.InvalidReplicationFactor, "a partition has at least one replica")
	case int(factor) > len(s.brokers):
		return nil, refuse(kerr.InvalidReplicationFactor, "%d replicas need as many brokers, of which %d live", factor, len(s.brokers))
	}
	if err := c.room(s, int(count)); err != nil {
		return nil, err
	}
	return assignReplicas(newRand(), s.brokers, int(count), int(factor), nil), nil
}

// room takes n partitions from what one request may create, over all its
// topics: placing them costs time and memory also when nothing is written.
func (c *Controller) room(s *snapshot, n int) error {
	if n > c.cfg.MaxPartitionsPerRequest-s.placed {
		return refuse(kerr.InvalidPartitions, "%d partitions more would be over the %d that one request may make", n, c.cfg.MaxPartitionsPerRequest)
	}
	s.placed += n
	return nil
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }

// checkReplicas checks partitions that the caller has placed.
func checkReplicas(brokers []placement, parts [][]int32, factor int) error {
	for i, rs := range parts {
		switch {
		case len(rs) != factor:
			return refuse(kerr.InvalidReplicaAssignment, "partition %d has %d replicas, the others %d", i, len(rs), factor)
		case repeats(rs):
			return refuse(kerr.InvalidReplicaAssignment, "the replicas %v name a broker twice for partition %d", rs, i)
		}
		for _, r := range rs {
			if !slices.ContainsFunc(brokers, func(b placement) bool { return b.id == r }) {
				return refuse(kerr.InvalidReplicaAssignment, "no broker %d lives to take a replica", r)
			}
		}
	}
	return nil
}
