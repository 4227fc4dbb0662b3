package metadata

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// Cache holds the current Image. The zero value is not usable; see NewCache.
type Cache struct {
	cur atomic.Pointer[Image]

	mu      sync.Mutex    // one writer at a time
	changed chan struct{} // closed and replaced at each swap; guarded by mu
}

// NewCache starts with an empty image: no broker, no topic, controller -1.
func NewCache(clusterID string) *Cache {
	c := &Cache{changed: make(chan struct{})}
	c.cur.Store(&Image{ClusterID: clusterID, ControllerID: -1, Brokers: map[int32]*Broker{}, topics: &btree.Map[string, *Topic]{}, names: &btree.Map[string, string]{}})
	return c
}

// Image returns the current image, never nil.
func (c *Cache) Image() *Image { return c.cur.Load() }

// Delta says what an update did to the topics.
type Delta struct {
	Changed []protocol.TopicPartition // added or changed
	Deleted []protocol.TopicPartition // gone with their topic
}

// Apply makes the next image from a controller's update (versions 0 to 8). An
// update of a controller that has been replaced is refused with
// STALE_CONTROLLER_EPOCH. The brokers of the update replace the known ones;
// its topics are merged into the known ones.
//
// The request's broker epoch is not looked at: whether the update is meant for
// this life of the broker is for the caller, who knows its registration.
func (c *Cache) Apply(req *kmsg.UpdateMetadataRequest) (Delta, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cur := c.cur.Load()
	if req.ControllerEpoch < cur.ControllerEpoch {
		return Delta{}, kerr.StaleControllerEpoch
	}
	next := &Image{
		ClusterID:       cur.ClusterID,
		ControllerID:    req.ControllerID,
		ControllerEpoch: req.ControllerEpoch,
		Brokers:         brokersOf(req),
		topics:          cur.topics,
		names:           cur.names,
	}
	var d Delta
	topics := topicStatesOf(req)
	if len(topics) > 0 {
		next.topics, next.names = cur.topics.Copy(), cur.names.Copy()
		fresh := map[string]bool{} // topics that are already a private copy
		for i := range topics {
			next.merge(&topics[i], fresh, &d)
		}
	}
	c.swap(next)
	return d, nil
}

// merge puts one topic's new partition states into the image.
func (im *Image) merge(ts *kmsg.UpdateMetadataRequestTopicState, fresh map[string]bool, d *Delta) {
	t := im.Topic(ts.Topic)
	if t != nil && ts.TopicID != (protocol.UUID{}) && t.ID != (protocol.UUID{}) && t.ID != ts.TopicID {
		// Deleted and created again between two updates that we saw: nothing of
		// the old topic may shine through, least of all its leader epochs.
		im.names.Delete(string(t.ID[:]))
		t = nil
	}
	switch {
	case t == nil:
		t = &Topic{Name: ts.Topic, ID: ts.TopicID, parts: &btree.Map[int32, *Partition]{}}
	case !fresh[ts.Topic]:
		t = &Topic{Name: t.Name, ID: t.ID, parts: t.parts.Copy()}
		if ts.TopicID != (protocol.UUID{}) {
			t.ID = ts.TopicID
		}
	}
	fresh[ts.Topic] = true
	for i := range ts.PartitionStates {
		p := &ts.PartitionStates[i]
		tp := protocol.TopicPartition{Topic: ts.Topic, Partition: p.Partition}
		if p.Leader == leaderDuringDelete {
			t.parts.Delete(p.Partition)
			d.Deleted = append(d.Deleted, tp)
			continue
		}
		t.parts.Set(p.Partition, partitionOf(p))
		d.Changed = append(d.Changed, tp)
	}
	if t.Len() == 0 {
		im.topics.Delete(ts.Topic)
		im.names.Delete(string(t.ID[:]))
		return
	}
	im.topics.Set(ts.Topic, t)
	if t.ID != (protocol.UUID{}) {
		im.names.Set(string(t.ID[:]), ts.Topic)
	}
}

func partitionOf(p *kmsg.UpdateMetadataRequestTopicPartition) *Partition {
	q := &Partition{
		Index: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, ControllerEpoch: p.ControllerEpoch,
		PartitionEpoch: p.ZKVersion, ISR: p.ISR, Replicas: p.Replicas, Offline: p.OfflineReplicas,
	}
	if q.Leader < 0 {
		q.Leader = NoLeader
	}
	if q.LeaderEpoch < 0 {
		q.LeaderEpoch = NoLeader
	}
	return q
}

// topicStatesOf gives the states in the shape of v5 and later, which group the
// partitions by topic.
func topicStatesOf(req *kmsg.UpdateMetadataRequest) []kmsg.UpdateMetadataRequestTopicState {
	if len(req.PartitionStates) == 0 {
		return req.TopicStates
	}
	at := map[string]int{}
	ts := req.TopicStates
	for _, p := range req.PartitionStates {
		i, ok := at[p.Topic]
		if !ok {
			i = len(ts)
			at[p.Topic] = i
			ts = append(ts, kmsg.UpdateMetadataRequestTopicState{Topic: p.Topic})
		}
		ts[i].PartitionStates = append(ts[i].PartitionStates, p)
	}
	return ts
}

// securityProtocols are the names that listeners have in the versions which
// carry no listener name.
var securityProtocols = map[int16]string{0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}

func brokersOf(req *kmsg.UpdateMetadataRequest) map[int32]*Broker {
	bs := make(map[int32]*Broker, len(req.LiveBrokers))
	for i := range req.LiveBrokers {
		lb := &req.LiveBrokers[i]
		b := &Broker{ID: lb.ID, Rack: lb.Rack}
		for _, e := range lb.Endpoints {
			name := e.ListenerName
			if name == "" {
				name = securityProtocols[e.SecurityProtocol]
			}
			b.Endpoints = append(b.Endpoints, Endpoint{Listener: name, Host: e.Host, Port: e.Port, SecurityProtocol: e.SecurityProtocol})
		}
		if len(lb.Endpoints) == 0 && lb.Host != "" {
			b.Endpoints = []Endpoint{{Listener: "PLAINTEXT", Host: lb.Host, Port: lb.Port}}
		}
		bs[b.ID] = b
	}
	return bs
}

// swap publishes the image and wakes the waiters; c.mu is held.
func (c *Cache) swap(next *Image) {
	c.cur.Store(next)
	close(c.changed)
	c.changed = make(chan struct{})
}

// Await blocks until cond holds for the current image, or ctx ends.
func (c *Cache) Await(ctx context.Context, cond func(*Image) bool) error {
	for {
		c.mu.Lock()
		im, ch := c.cur.Load(), c.changed
		c.mu.Unlock()
		if cond(im) {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// AwaitTopic blocks until the topic is known with at least that many
// partitions, each with a leader, or ctx ends.
func (c *Cache) AwaitTopic(ctx context.Context, topic string, partitions int) error {
	return c.Await(ctx, func(im *Image) bool {
		t := im.Topic(topic)
		if t == nil || t.Len() < partitions {
			return false
		}
		for _, p := range t.Sorted() {
			if p.Leader < 0 {
				return false
			}
		}
		return true
	})
}
