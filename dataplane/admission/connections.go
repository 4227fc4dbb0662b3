package admission

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// ErrTooManyConnections is in the chain of every refusal; the text names the
// setting that refused.
var ErrTooManyConnections = errors.New("too many connections")

// ConnectionLimits are Kafka's max.connections settings (KIP-402) and those of the rate at which
// connections are made (KIP-612). Zero or less is no limit, save in Overrides and the rates.
type ConnectionLimits struct {
	Max         int                // max.connections, over all listeners
	MaxPerIP    int                // max.connections.per.ip
	Overrides   map[netip.Addr]int // max.connections.per.ip.overrides; 0 refuses the address
	PerListener map[string]int     // listener.name.NAME.max.connections
	Protected   string             // the inter-broker listener, when there is more than one: Max never refuses it

	// Rate is max.connection.creation.rate in connections a second over all listeners, and RatePerListener
	// listener.name.NAME.max.connection.creation.rate. 0 is no limit, less lets one through each window.
	Rate            int
	RatePerListener map[string]int
	Samples         int           // quota.window.num; 11
	Window          time.Duration // quota.window.size.seconds; 1 s
}

// Connections counts the broker's connections.
type Connections struct {
	mu       sync.Mutex
	limits   ConnectionLimits
	total    int
	byIP     map[netip.Addr]int
	listener map[string]int
	rates    creation
	clock    func() time.Time
}

// NewConnections makes an empty count.
func NewConnections(l ConnectionLimits) *Connections {
	return &Connections{
		limits: l, byIP: make(map[netip.Addr]int), listener: make(map[string]int), clock: time.Now,
		rates: creation{byListener: map[string]*rate{}, byIP: map[netip.Addr]*ipRate{}, limits: map[netip.Addr]float64{}},
	}
}

// SetLimits changes the limits for connections to come.
func (c *Connections) SetLimits(l ConnectionLimits) {
	c.mu.Lock()
	c.limits = l
	c.mu.Unlock()
}

// Accept admits or refuses one connection; a *ThrottledError among the refusals is for its address's rate. release must be called when an
// admitted one has closed; more calls of it do nothing.
func (c *Connections) Accept(listener string, ip netip.Addr) (release func(), err error) {
	ip = ip.Unmap().WithZone("")
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.limits
	if err := c.tooFast(ip); err != nil {
		return nil, err
	}
	if m, ok := l.Overrides[ip]; ok {
		if c.byIP[ip] >= m {
			return nil, fmt.Errorf("%w from %s: max.connections.per.ip.overrides allows %d", ErrTooManyConnections, ip, m)
		}
	} else if l.MaxPerIP > 0 && c.byIP[ip] >= l.MaxPerIP {
		return nil, fmt.Errorf("%w from %s: max.connections.per.ip is %d", ErrTooManyConnections, ip, l.MaxPerIP)
	}
	if m := l.PerListener[listener]; m > 0 && c.listener[listener] >= m {
		return nil, fmt.Errorf("%w on listener %s: its max.connections is %d", ErrTooManyConnections, listener, m)
	}
	if l.Max > 0 && c.total >= l.Max && listener != l.Protected {
		return nil, fmt.Errorf("%w: max.connections is %d", ErrTooManyConnections, l.Max)
	}
	c.total++
	c.byIP[ip]++
	c.listener[listener]++
	var once sync.Once
	return func() { once.Do(func() { c.release(listener, ip) }) }, nil
}

func (c *Connections) release(listener string, ip netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	c.listener[listener]--
	if c.byIP[ip]--; c.byIP[ip] == 0 {
		delete(c.byIP, ip) // addresses come and go: the map must not keep them
	}
}

// Total is the number of connections admitted and not released.
func (c *Connections) Total() int { c.mu.Lock(); defer c.mu.Unlock(); return c.total }
