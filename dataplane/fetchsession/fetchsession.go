// Package fetchsession keeps incremental fetch sessions (KIP-227).
package fetchsession

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// Config of a Cache.
type Config struct {
	// Slots is max.incremental.fetch.session.cache.slots. Default 1000; negative is none.
	Slots int
	// MinEviction is how long a session must be idle before any other may take its place. Default 120 s.
	MinEviction time.Duration
	Now         func() time.Time
}

// Cache holds the sessions of one broker.
type Cache struct{}

// New makes an empty cache.
func New(cfg Config) *Cache { return &Cache{} }

// Part is one partition to read.
type Part struct {
	Topic   string // empty if the id names no topic: answer UNKNOWN_TOPIC_ID
	TopicID protocol.UUID
	Partition,
	CurrentLeaderEpoch, LastFetchedEpoch int32
	FetchOffset, LogStartOffset int64
	MaxBytes                    int32
}

// Begin takes a request. resolve gives the name of a topic id (v13+).
// privileged is true for followers. The error is a *kerr.Error for the top of
// the reply.
func (c *Cache) Begin(req *kmsg.FetchRequest, privileged bool, resolve func(protocol.UUID) (string, bool)) (*Context, error) {
	return nil, nil
}

// Len is the number of sessions.
func (c *Cache) Len() int { return 0 }

// Context is one fetch request in its session.
type Context struct{}

// Parts lists the partitions to read, in the order to be served.
func (x *Context) Parts() []Part { return nil }

// Reply makes the response from the results, which must stand in the order of
// Parts; an incremental one leaves out partitions without news.
func (x *Context) Reply(results []protocol.FetchPartition) *protocol.FetchResponse { return nil }

// Throttled is the empty reply that leaves the session as it was.
func (x *Context) Throttled() *protocol.FetchResponse { return nil }
