// Package admission decides who must wait and who is refused.
package admission

import (
	"context"
	"net/netip"
	"time"
)

// QuotaConfig sets the windows; zero values are Kafka's defaults.
type QuotaConfig struct {
	Samples int           // quota.window.num, 11
	Window  time.Duration // quota.window.size.seconds, 1 s
	Clock   func() time.Time
}

// Quotas keeps the client quotas of one broker.
type Quotas struct{}

func NewQuotas(cfg QuotaConfig) *Quotas { return &Quotas{} }

// Update takes the config map of one quota znode: path as /config/users/U, /config/clients/C or /config/users/U/clients/C (URL-encoded, <default>).
func (q *Quotas) Update(path string, config map[string]string) error { return nil }

// Produce charges bytes and returns the throttle. user is without "User:".
func (q *Quotas) Produce(user, clientID string, bytes int) time.Duration { return 0 }

// Fetch charges bytes and returns the throttle.
func (q *Quotas) Fetch(user, clientID string, bytes int) time.Duration { return 0 }

// UnrecordFetch takes back what Fetch charged.
func (q *Quotas) UnrecordFetch(user, clientID string, bytes int) {}

// FetchLimit is the most bytes that one fetch of this client may return.
func (q *Quotas) FetchLimit(user, clientID string) int64 { return 1<<63 - 1 }

// Request charges handler time with a check.
func (q *Quotas) Request(user, clientID string, d time.Duration) time.Duration { return 0 }

// RequestNetwork charges network time without a check.
func (q *Quotas) RequestNetwork(user, clientID string, d time.Duration) {}

// Memory is a budget of bytes; waiters are served in order.
type Memory struct{}

func NewMemory(limit int64) *Memory                            { return &Memory{} }
func (m *Memory) Acquire(ctx context.Context, n int64) error { return nil }
func (m *Memory) Release(n int64)                              {}

// Connections counts connections.
type Connections struct{}

// ConnectionLimits are Kafka's max.connections*; zero or less means none.
type ConnectionLimits struct {
	Max         int
	MaxPerIP    int
	Overrides   map[string]int // max.connections.per.ip.overrides
	PerListener map[string]int // listener.name.X.max.connections
	Protected   string         // the inter-broker listener, never refused for Max
}

func NewConnections(l ConnectionLimits) *Connections { return &Connections{} }

// Accept admits or refuses one connection; release must be called once when it closes.
func (c *Connections) Accept(listener string, ip netip.Addr) (release func(), err error) {
	return func() {}, nil
}
