package partition

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/protocol"
)

// Leader epochs of StopReplica with a meaning of their own.
const (
	noEpoch           = -1 // the request is too old to carry one
	epochDuringDelete = -2 // overrides any epoch
)

// fence checks the sender of a controller order. With ctl held.
//
// A broker epoch above our own is accepted: the controller may have seen our
// new registration before we know of it. -1 is a controller that sends none.
func (m *Manager) fence(brokerEpoch int64, controllerEpoch int32) error {
	m.mu.RLock()
	closed := m.closed
	m.mu.RUnlock()
	if closed {
		return kerr.BrokerNotAvailable
	}
	if own := m.cfg.BrokerEpoch(); brokerEpoch != -1 && brokerEpoch < own {
		return kerr.StaleBrokerEpoch
	}
	if controllerEpoch < m.controllerEpoch {
		return kerr.StaleControllerEpoch
	}
	m.controllerEpoch = controllerEpoch
	return nil
}

// LeaderAndISR obeys the controller: each partition that it names with a leader
// epoch above the one known here becomes leader or follower. A full request
// (type 2) is treated like an incremental one: what it leaves out stays, since
// in ZooKeeper mode only StopReplica takes a replica away.
func (m *Manager) LeaderAndISR(req *kmsg.LeaderAndISRRequest) *kmsg.LeaderAndISRResponse {
	resp := req.ResponseKind().(*kmsg.LeaderAndISRResponse)
	m.ctl.Lock()
	defer m.ctl.Unlock()
	if err := m.fence(req.BrokerEpoch, req.ControllerEpoch); err != nil {
		m.logger.Warn("refused LeaderAndIsr", "controller", req.ControllerID, "epoch", req.ControllerEpoch, "err", err)
		resp.ErrorCode = protocol.Code(err)
		return resp
	}
	orders := m.orders(req)

	// Fetchers stop before roles change; what they bring late is refused by epoch.
	var moving []TopicPartition
	for i := range orders {
		if orders[i].err == nil {
			moving = append(moving, orders[i].tp)
		}
	}
	if m.cfg.Fetchers != nil && len(moving) > 0 {
		m.cfg.Fetchers.Remove(moving)
	}
	addrs := map[int32]string{}
	for _, l := range req.LiveLeaders {
		addrs[l.BrokerID] = net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port)))
	}
	var targets []FetchTarget
	for i := range orders {
		o := &orders[i]
		if o.err != nil {
			continue
		}
		if o.state.Leader == m.cfg.BrokerID {
			o.becameLeader, o.err = o.p.lead(o.state)
			continue
		}
		o.p.follow(o.state)
		o.becameFollower = true
		if o.state.Leader >= 0 {
			targets = append(targets, FetchTarget{Partition: o.p, Leader: o.state.Leader, LeaderEpoch: o.state.LeaderEpoch, Addr: addrs[o.state.Leader]})
		}
	}
	if m.cfg.Fetchers != nil && len(targets) > 0 {
		m.cfg.Fetchers.Set(targets)
	}
	for i := range orders {
		if o := &orders[i]; o.err == nil {
			m.movers.add(o.p)
		}
	}
	if f := m.cfg.Hooks.OnLeadership; f != nil {
		for i := range orders {
			if o := &orders[i]; o.err == nil && (o.becameLeader || o.becameFollower) {
				f(o.tp, o.becameLeader, o.state.LeaderEpoch)
			}
		}
	}
	answer(resp, orders)
	return resp
}

// order is one partition of a LeaderAndIsr request.
type order struct {
	tp                           TopicPartition
	topicID                      protocol.UUID
	state                        *kmsg.LeaderAndISRRequestTopicPartition
	p                            *Partition
	err                          error
	becameLeader, becameFollower bool
}

// orders checks each partition and makes the logs that are missing.
func (m *Manager) orders(req *kmsg.LeaderAndISRRequest) []order {
	var orders []order
	for i := range req.PartitionStates { // v0 and v1
		s := &req.PartitionStates[i]
		orders = append(orders, order{tp: TopicPartition{Topic: s.Topic, Partition: s.Partition}, state: s})
	}
	for i := range req.TopicStates {
		t := &req.TopicStates[i]
		for j := range t.PartitionStates {
			s := &t.PartitionStates[j]
			orders = append(orders, order{tp: TopicPartition{Topic: t.Topic, Partition: s.Partition}, topicID: t.TopicID, state: s})
		}
	}
	m.makeFolders(orders)
	for i := range orders {
		o := &orders[i]
		o.p, o.err = m.admit(o)
	}
	clear(m.ready)
	m.syncMade()
	for i := range orders {
		if o := &orders[i]; o.err == nil && o.p.gone() { // the folder has failed meanwhile
			o.err = kerr.KafkaStorageError
		}
	}
	return orders
}

// syncMade makes the folders of new replicas durable, once for all of a request.
func (m *Manager) syncMade() {
	for d := range m.made {
		if err := d.Sync(); err != nil {
			m.failDir(d, err)
		}
	}
	clear(m.made)
}

func (m *Manager) admit(o *order) (*Partition, error) {
	if !slices.Contains(o.state.Replicas, m.cfg.BrokerID) {
		return nil, kerr.UnknownTopicOrPartition
	}
	p := m.Partition(o.tp)
	if _, ok := m.damagedAt(o.tp); ok {
		return nil, kerr.KafkaStorageError
	}
	if p == nil {
		return m.create(o.tp, o.topicID, o.state.IsNew)
	}
	p.state.Lock()
	known, epoch, failed := p.topicID, p.leaderEpoch, p.failed
	p.state.Unlock()
	none := protocol.UUID{}
	switch {
	case failed != nil:
		return p, kerr.KafkaStorageError
	case o.topicID != none && known != none && o.topicID != known:
		return p, kerr.InconsistentTopicID
	case o.state.LeaderEpoch <= epoch:
		return p, kerr.StaleControllerEpoch
	}
	if o.topicID != none && known == none {
		if err := commitlog.WriteTopicID(m.cfg.FS, p.log().Dir(), o.topicID); err != nil {
			return p, p.broken(err)
		}
		p.state.Lock()
		p.topicID = o.topicID
		p.state.Unlock()
	}
	return p, nil
}

func answer(resp *kmsg.LeaderAndISRResponse, orders []order) {
	at := map[protocol.UUID]int{}
	for i := range orders {
		o := &orders[i]
		e := kmsg.NewLeaderAndISRResponseTopicPartition()
		e.Partition, e.ErrorCode = o.tp.Partition, protocol.Code(o.err)
		if resp.Version < 5 {
			e.Topic = o.tp.Topic
			resp.Partitions = append(resp.Partitions, e)
			continue
		}
		j, ok := at[o.topicID]
		if !ok {
			t := kmsg.NewLeaderAndISRResponseTopic()
			t.TopicID = o.topicID
			j = len(resp.Topics)
			at[o.topicID] = j
			resp.Topics = append(resp.Topics, t)
		}
		resp.Topics[j].Partitions = append(resp.Topics[j].Partitions, e)
	}
}

// StopReplica obeys the controller: the replicas stop copying, and those to be
// deleted go. Without deletion the role stays until the next LeaderAndIsr.
func (m *Manager) StopReplica(req *kmsg.StopReplicaRequest) *kmsg.StopReplicaResponse {
	resp := req.ResponseKind().(*kmsg.StopReplicaResponse)
	m.ctl.Lock()
	defer m.ctl.Unlock()
	if err := m.fence(req.BrokerEpoch, req.ControllerEpoch); err != nil {
		m.logger.Warn("refused StopReplica", "controller", req.ControllerID, "epoch", req.ControllerEpoch, "err", err)
		resp.ErrorCode = protocol.Code(err)
		return resp
	}
	emptied := map[*commitlog.Dir]bool{}
	for _, s := range stops(req) {
		r := kmsg.NewStopReplicaResponsePartition()
		r.Topic, r.Partition = s.tp.Topic, s.tp.Partition
		dirs, err := m.stopOne(s)
		for _, d := range dirs {
			emptied[d] = true
		}
		r.ErrorCode = protocol.Code(err)
		resp.Partitions = append(resp.Partitions, r)
	}
	for d := range emptied {
		m.forgetDeleted(d)
	}
	return resp
}

type stopOrder struct {
	tp     TopicPartition
	epoch  int32
	delete bool
}

// stops flattens the three layouts of the request.
func stops(req *kmsg.StopReplicaRequest) []stopOrder {
	var out []stopOrder
	for i := range req.Topics {
		t := &req.Topics[i]
		switch {
		case req.Version == 0:
			out = append(out, stopOrder{TopicPartition{Topic: t.Topic, Partition: t.Partition}, noEpoch, req.DeletePartitions})
		case req.Version < 3:
			for _, n := range t.Partitions {
				out = append(out, stopOrder{TopicPartition{Topic: t.Topic, Partition: n}, noEpoch, req.DeletePartitions})
			}
		default:
			for _, s := range t.PartitionStates {
				out = append(out, stopOrder{TopicPartition{Topic: t.Topic, Partition: s.Partition}, s.LeaderEpoch, s.Delete})
			}
		}
	}
	return out
}

// stopOne tells the folders from which it deleted the replica, if it did.
func (m *Manager) stopOne(s stopOrder) (from []*commitlog.Dir, err error) {
	p := m.Partition(s.tp)
	if s.delete {
		delete(m.preferred, s.tp)
	}
	if r, ok := m.damagedAt(s.tp); ok && s.delete {
		return []*commitlog.Dir{r.dir}, m.dropDamaged(s.tp, r)
	}
	if p == nil {
		if s.delete && m.anyOffline() {
			return nil, kerr.KafkaStorageError // it may lie in a folder that is out of reach
		}
		return nil, nil
	}
	p.state.Lock()
	failed, epoch := p.failed, p.leaderEpoch
	p.state.Unlock()
	if failed != nil {
		return nil, kerr.KafkaStorageError
	}
	if s.epoch != epochDuringDelete && s.epoch != noEpoch && s.epoch < epoch {
		return nil, kerr.FencedLeaderEpoch
	}
	if m.cfg.Fetchers != nil {
		m.cfg.Fetchers.Remove([]TopicPartition{s.tp})
	}
	p.endHandover() // what is not copied any more tells nothing of its leader
	if !s.delete {
		return nil, nil
	}
	from, err = m.drop(p)
	m.produces.Check(p)
	m.fetches.Check(p)
	m.deletes.Check(p)
	if f := m.cfg.Hooks.OnLeadership; f != nil {
		// No epoch: a topic made anew under this name starts again at 0.
		f(s.tp, false, noEpoch)
	}
	if f := m.cfg.Hooks.OnDelete; f != nil {
		f(s.tp)
	}
	return from, err
}

// drop takes the replica out of service and renames its folder away, and that of a
// copy.
func (m *Manager) drop(p *Partition) (from []*commitlog.Dir, err error) {
	p.append.Lock()
	defer p.append.Unlock()
	m.mu.Lock()
	delete(m.parts, p.tp)
	m.mu.Unlock()
	p.state.Lock()
	p.version.Add(1)
	p.role, p.leaderID, p.change = idle, -1, nil
	f := p.future
	p.state.Unlock()
	if f != nil {
		from = append(from, f.dir)
		m.discard(p, f)
	}
	from = append(from, p.dir())
	err = p.log().Close()
	if err == nil {
		err = p.dir().MarkDeleted(p.tp)
	}
	if err != nil {
		m.failDir(p.dir(), err)
		return from, fmt.Errorf("deleting %s: %w (%w)", p.tp, err, kerr.KafkaStorageError)
	}
	return from, nil
}
