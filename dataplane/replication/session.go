package replication

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
)

// Versions of Fetch between brokers: 12 names topics by name and carries the last fetched
// epoch, 13 names them by id, 15 tells the follower's broker epoch as well (KIP-903).
const (
	fetchByName    = 12
	fetchByID      = 13
	fetchWithEpoch = 15
)

// session is the follower's side of an incremental fetch session (KIP-227):
// requests name only what has changed, answers only what has news.
type session struct {
	id, epoch int32
	version   int16 // of the last request
	newest    int16 // that the leader has, up to fetchWithEpoch
	sent      map[protocol.TopicPartition]sentPart
	topics    map[protocol.UUID]string
}

// sentPart is what the leader holds of a partition in the session.
type sentPart struct {
	c           *copying
	leaderEpoch int32
	state       partition.FetchState
	topicID     protocol.UUID
}

// reset makes the next request a full one, which opens a new session.
func (s *session) reset() {
	s.id, s.epoch, s.sent = 0, 0, nil
}

// request builds the next fetch of the batch and takes it as sent.
func (s *session) request(batch []*copying, cfg *Config) *kmsg.FetchRequest {
	version := s.newest
	for _, c := range batch {
		if c.topicID == (protocol.UUID{}) {
			version = fetchByName
		}
	}
	if version != s.version {
		s.reset() // a session knows either names or ids
		s.version = version
	}
	full := s.id == 0
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(version)
	if version >= fetchWithEpoch {
		req.ReplicaState.ID, req.ReplicaState.Epoch = cfg.BrokerID, cfg.BrokerEpoch()
	} else {
		req.ReplicaID = cfg.BrokerID
	}
	req.MaxWaitMillis = int32(cfg.WaitMax.Milliseconds())
	req.MinBytes, req.MaxBytes = int32(cfg.MinBytes), int32(cfg.ResponseBytes)
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	if full {
		s.sent = make(map[protocol.TopicPartition]sentPart, len(batch))
		s.topics = map[protocol.UUID]string{}
	}
	for _, c := range batch {
		now := sentPart{c: c, leaderEpoch: c.target.LeaderEpoch, state: c.asked, topicID: c.topicID}
		old, ok := s.sent[c.tp]
		if ok && old.topicID != now.topicID {
			forget(req, c.tp, old.topicID) // another topic of the same name
			ok = false
		}
		s.sent[c.tp] = now
		s.topics[c.topicID] = c.tp.Topic
		if ok && old.leaderEpoch == now.leaderEpoch && old.state == now.state {
			continue
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch = c.tp.Partition, c.target.LeaderEpoch
		p.FetchOffset, p.LastFetchedEpoch, p.LogStartOffset = c.asked.Offset, c.asked.LastEpoch, c.asked.LogStartOffset
		p.PartitionMaxBytes = int32(cfg.PartitionBytes)
		// Partitions keep their order, since that is the order in which they are
		// served; only neighbours share a topic entry.
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != c.tp.Topic {
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = c.tp.Topic, c.topicID
			req.Topics = append(req.Topics, rt)
		}
		rt := &req.Topics[len(req.Topics)-1]
		rt.Partitions = append(rt.Partitions, p)
	}
	if len(s.sent) > len(batch) {
		keep := make(map[protocol.TopicPartition]bool, len(batch))
		for _, c := range batch {
			keep[c.tp] = true
		}
		for tp, old := range s.sent {
			if !keep[tp] {
				delete(s.sent, tp)
				forget(req, tp, old.topicID)
			}
		}
	}
	return req
}

func forget(req *kmsg.FetchRequest, tp protocol.TopicPartition, id protocol.UUID) {
	ft := kmsg.NewFetchRequestForgottenTopic()
	ft.Topic, ft.TopicID, ft.Partitions = tp.Topic, id, []int32{tp.Partition}
	req.ForgottenTopics = append(req.ForgottenTopics, ft)
}

// answered moves the session on after a good answer. An id of zero means that
// the leader keeps no session: every request is then a full one.
func (s *session) answered(id int32) {
	if id == 0 {
		s.id, s.epoch = 0, 0
		return
	}
	s.id = id
	if s.epoch++; s.epoch <= 0 {
		s.epoch = 1
	}
}

// find is the partition that an entry of the answer is about, nil if it was not asked for.
// The topic goes by its id, or by its name if the session does.
func (s *session) find(id protocol.UUID, name string, number int32) *copying {
	if s.version >= fetchByID {
		name = s.topics[id]
	}
	return s.sent[protocol.TopicPartition{Topic: name, Partition: number}].c
}
