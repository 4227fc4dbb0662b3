package admission

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// ConnectionCreationRate is the quota of an address (KIP-612), in connections a second.
const ConnectionCreationRate = "connection_creation_rate"

// ThrottledError refuses a connection of an address that makes too many. The listener closes it after a while, so
// that its client does not come again at once.
type ThrottledError struct {
	IP    netip.Addr
	After time.Duration // at most one window
}

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("too many new connections from %s: its %s is used up", e.IP, ConnectionCreationRate)
}

// CloseAfter is how long to keep the connection before it is closed.
func (e *ThrottledError) CloseAfter() time.Duration { return e.After }

// maxAddresses bounds the addresses whose rates are kept. Beyond it they share one.
const maxAddresses = 65536

// creation are the rates at which connections come.
type creation struct {
	all        rate
	byListener map[string]*rate
	byIP       map[netip.Addr]*ipRate
	limits     map[netip.Addr]float64 // of single addresses
	others     float64                // of all others
	limited    bool                   // others is set
	swept      int64                  // ms of the last look for idle addresses
}

type ipRate struct {
	rate
	used int64 // ms
}

// UpdateIP takes the whole config map of the quota znode of an address (/config/ips/A, also without
// /config/; <default> for all that have none of their own; nil or empty when it is gone). Kafka takes host names there as
// well; an address they may have today is not looked up here: they are an error.
func (c *Connections) UpdateIP(path string, config map[string]string) error {
	name, ok := strings.CutPrefix(strings.TrimPrefix(strings.TrimPrefix(path, "/"), "config/"), "ips/")
	if !ok {
		return fmt.Errorf("admission: %q is not the path of an address's quota", clip(path))
	}
	var ip netip.Addr
	if name != defaultNode {
		p, ok := parseNode(name)
		if !ok {
			return fmt.Errorf("admission: %q is not the path of an address's quota", clip(path))
		}
		var err error
		if ip, err = netip.ParseAddr(p.name); err != nil {
			return fmt.Errorf("admission: %s: %q is no IP address", ConnectionCreationRate, clip(p.name))
		}
		ip = ip.Unmap().WithZone("")
	}
	text, set := config[ConnectionCreationRate]
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	bad := set && (err != nil || math.IsNaN(v) || v < 0)
	set = set && !bad && v < math.MaxInt32
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case name == defaultNode:
		c.rates.others, c.rates.limited = v, set
	case set:
		c.rates.limits[ip] = v
	default:
		delete(c.rates.limits, ip)
	}
	if bad {
		return fmt.Errorf("admission: %s: bad value of %s", clip(path), ConnectionCreationRate)
	}
	return nil
}

// Arrived counts a connection that a listener has taken from the system, and tells for how long
// that listener shall take no other, and do nothing with this one: so long is its own rate, or that of
// all listeners, exceeded; at most one window. The rate of all does not hold up the protected listener.
func (c *Connections) Arrived(listener string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock().UnixMilli()
	var wait time.Duration
	if limit := c.limits.RatePerListener[listener]; limit != 0 {
		r := c.rates.byListener[listener]
		if r == nil {
			r = new(rate)
			c.rates.byListener[listener] = r
		}
		wait = c.exceeded(r, float64(limit), now)
	}
	if limit := c.limits.Rate; limit != 0 && listener != c.limits.Protected {
		wait = max(wait, c.exceeded(&c.rates.all, float64(limit), now))
	}
	return wait
}

// exceeded counts one connection. With mu held.
func (c *Connections) exceeded(r *rate, limit float64, now int64) time.Duration {
	n, window := c.limits.samples(), c.limits.window()
	r.record(1, now, n, window.Milliseconds())
	perSecond, w := r.measure(now, n, window.Milliseconds())
	return min(throttle(perSecond, max(limit, 0), w), window)
}

// tooFast is an error if the address makes too many connections; the one is not counted
// then. With mu held.
func (c *Connections) tooFast(ip netip.Addr) error {
	limit, ok := c.rates.limits[ip]
	if !ok {
		if limit, ok = c.rates.others, c.rates.limited; !ok {
			return nil
		}
	}
	now := c.clock().UnixMilli()
	r := c.ipRate(ip, now)
	r.used = now
	wait := c.exceeded(&r.rate, limit, now)
	if wait <= 0 {
		return nil
	}
	r.record(-1, now, c.limits.samples(), c.limits.window().Milliseconds())
	return &ThrottledError{ip, wait}
}

func (c *Connections) ipRate(ip netip.Addr, now int64) *ipRate {
	if r := c.rates.byIP[ip]; r != nil {
		return r
	}
	if window := c.limits.window().Milliseconds(); len(c.rates.byIP) >= maxAddresses && now-c.rates.swept >= window {
		c.rates.swept = now
		idle := int64(c.limits.samples()) * window
		for a, r := range c.rates.byIP {
			if now-r.used >= idle {
				delete(c.rates.byIP, a)
			}
		}
	}
	if len(c.rates.byIP) >= maxAddresses {
		ip = netip.Addr{}
	}
	r := c.rates.byIP[ip]
	if r == nil {
		r = new(ipRate)
		c.rates.byIP[ip] = r
	}
	return r
}

func (l *ConnectionLimits) samples() int {
	if l.Samples <= 0 {
		return 11
	}
	return l.Samples
}

func (l *ConnectionLimits) window() time.Duration {
	if l.Window < time.Millisecond {
		return time.Second
	}
	return l.Window
}
