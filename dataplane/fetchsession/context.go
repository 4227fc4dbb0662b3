package fetchsession

import (
	"slices"
	"sync"

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

// Context is one fetch request in its session, or without one. Its memory is used
// again after Release, which may be left out.
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

	own   []Part // the memory of parts without a session
	reply protocol.FetchResponse
}

var contexts = sync.Pool{New: func() any { return new(Context) }}

// maxPooledParts bounds the partitions of a Context whose memory is kept.
const maxPooledParts = 512

// Release ends the use of the context, of Parts and of the response.
func (x *Context) Release() {
	if cap(x.own) > maxPooledParts || cap(x.cached) > maxPooledParts || cap(x.reply.Topics) > maxPooledParts {
		return
	}
	for i := range x.reply.Topics {
		clear(x.reply.Topics[i].Partitions) // they hold files
	}
	clear(x.cached)
	*x = Context{own: x.own[:0], cached: x.cached[:0], reply: protocol.FetchResponse{Topics: x.reply.Topics[:0]}}
	contexts.Put(x)
}

// Parts lists the partitions to read, in the order to be served. It is valid
// until Reply or Throttled.
func (x *Context) Parts() []Part { return x.parts }

// Reply makes the response from the results, one for each of Parts in its order.
// A full fetch gets them all, and a session if there is a place. An
// incremental one leaves out partitions without news; those with records go to
// the end of the session's order, so that all get their turn.
func (x *Context) Reply(results []protocol.FetchPartition) *protocol.FetchResponse {
	resp := &x.reply
	if x.session == nil {
		if x.wantsSession {
			resp.SessionID = x.cache.create(x, results)
		}
		for i := range results {
			x.add(i, &results[i])
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
			x.add(i, &results[i])
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
	resp := &x.reply
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

// add appends a partition to the reply, in the topic before it where that is the same.
func (x *Context) add(i int, p *protocol.FetchPartition) {
	part, topics := &x.parts[i], x.reply.Topics
	n := len(topics)
	if n == 0 || topics[n-1].Topic != part.Topic || topics[n-1].TopicID != part.TopicID {
		topics = slices.Grow(topics, 1)[:n+1]
		topics[n] = protocol.FetchTopic{Topic: part.Topic, TopicID: part.TopicID, Partitions: topics[n].Partitions[:0]}
		x.reply.Topics = topics
		n++
	}
	topics[n-1].Partitions = append(topics[n-1].Partitions, *p)
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

// rotate moves the partitions with records behind the others, in their order. refs is
// the session's order, since nobody has used it since.
func (s *session) rotate(refs []*cached, results []protocol.FetchPartition) {
	s.order, s.served = s.order[:0], s.served[:0]
	for i, p := range refs {
		if results[i].Records.Size() > 0 {
			s.served = append(s.served, p)
		} else {
			s.order = append(s.order, p)
		}
	}
	s.order = append(s.order, s.served...)
}
