package fetchsession

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/protocol"
)

// Part is one partition to read.
type Part struct {
	// Topic is empty if TopicID names no topic: answer UNKNOWN_TOPIC_ID.
	Topic                                string
	TopicID                              protocol.UUID
	Partition                            int32
	CurrentLeaderEpoch, LastFetchedEpoch int32
	FetchOffset, LogStartOffset          int64
	MaxBytes                             int32
}

// Context is one fetch request in its session, or without one.
type Context struct {
	cache        *Cache
	privileged   bool
	usesIDs      bool
	wantsSession bool
	parts        []Part

	// Of an incremental fetch.
	session *session
	epoch   int32
	cached  []*cached // as parts
}

// Parts lists the partitions to read, in the order to be served. It is valid
// until Reply or Throttled.
func (x *Context) Parts() []Part { return x.parts }

// Reply makes the response from the results, one for each of Parts in its order.
// A full fetch gets them all, and a session if there is a place. An
// incremental one leaves out partitions without news; those with records go to
// the end of the session's order, so that all get their turn.
func (x *Context) Reply(results []protocol.FetchPartition) *protocol.FetchResponse {
	resp := &protocol.FetchResponse{}
	if x.session == nil {
		if x.wantsSession {
			resp.SessionID = x.cache.create(x, results)
		}
		for i := range results {
			x.add(resp, i, &results[i])
		}
		return resp
	}
	s := x.session
	s.mu.Lock()
	defer s.mu.Unlock()
	resp.SessionID = s.id
	if s.epoch != x.epoch {
		// Another request has used the session meanwhile.
		resp.ErrorCode = kerr.InvalidFetchSessionEpoch.Code
		return resp
	}
	served := 0
	for i := range results {
		if x.cached[i].tell(&results[i]) {
			x.add(resp, i, &results[i])
			if results[i].Records.Size() > 0 {
				served++
			}
		}
	}
	if served > 0 && served < len(s.order) {
		s.rotate(x.cached, results)
	}
	s.spare, x.parts = x.parts, nil
	return resp
}

// Throttled is the empty reply of a fetch that its quota holds back. What the
// client has been told stays as it was.
func (x *Context) Throttled() *protocol.FetchResponse {
	resp := &protocol.FetchResponse{}
	if s := x.session; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		resp.SessionID = s.id
		if s.epoch != x.epoch {
			resp.ErrorCode = kerr.InvalidFetchSessionEpoch.Code
		} else {
			s.spare, x.parts = x.parts, nil
		}
	}
	return resp
}

// add appends a partition, in the topic before it where that is the same.
func (x *Context) add(resp *protocol.FetchResponse, i int, p *protocol.FetchPartition) {
	part := &x.parts[i]
	if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != part.Topic || resp.Topics[n-1].TopicID != part.TopicID {
		resp.Topics = append(resp.Topics, protocol.FetchTopic{Topic: part.Topic, TopicID: part.TopicID})
	}
	t := &resp.Topics[len(resp.Topics)-1]
	t.Partitions = append(t.Partitions, *p)
}

// tell notes what the client is told and reports whether that is news.
func (p *cached) tell(r *protocol.FetchPartition) bool {
	news := r.Records.Size() > 0 || r.PreferredReadReplica != -1 || r.DivergingEpoch != -1 || r.DivergingEndOffset != -1
	if p.highWatermark != r.HighWatermark {
		p.highWatermark, news = r.HighWatermark, true
	}
	if p.logStart != r.LogStartOffset {
		p.logStart, news = r.LogStartOffset, true
	}
	if r.ErrorCode != 0 {
		// No log has this high watermark: the end of the error will be news.
		p.highWatermark, news = -1, true
	}
	return news
}

// rotate moves the partitions with records behind the others, in their order.
func (s *session) rotate(refs []*cached, results []protocol.FetchPartition) {
	quiet := make([]*cached, 0, len(refs))
	var served []*cached
	for i, p := range refs {
		if results[i].Records.Size() > 0 {
			served = append(served, p)
		} else {
			quiet = append(quiet, p)
		}
	}
	s.order = append(quiet, served...)
}
