// Package ports hands out free loopback ports to programs that start others and
// must tell them beforehand where to listen.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
)

// Pool hands out free loopback ports; its zero value is ready. A port handed out stays reserved against
// other processes that use this type too, until Release or the end of the
// process: between "it is free" and "the broker listens" another one would
// otherwise pick the same. The reservation is an abstract Unix socket named
// after the port, which leaves nothing behind and dies with its holder.
//
// Ports come from below the kernel's range for outgoing connections, so that no
// connection sits on one while its broker restarts.
type Pool struct {
	mu   sync.Mutex
	held map[int]net.Listener
}

const (
	lowPort  = 15000
	highPort = 32000
)

// ErrTaken says that a wanted port is in use.
var ErrTaken = errors.New("port is in use")

// Any reserves a free port other than those to avoid and those it has given before.
func (p *Pool) Any(avoid ...int) (int, error) {
	for range 1000 {
		port := lowPort + rand.IntN(highPort-lowPort)
		if slices.Contains(avoid, port) || p.holds(port) {
			continue
		}
		if err := p.Take(port); err == nil {
			return port, nil
		} else if !errors.Is(err, ErrTaken) {
			return 0, err
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d", lowPort, highPort)
}

func (p *Pool) holds(port int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[port] != nil
}

// Keep reserves this port if it is free, else any; 0 is any.
func (p *Pool) Keep(port int, avoid ...int) (int, error) {
	if port != 0 && !slices.Contains(avoid, port) {
		if err := p.Take(port); !errors.Is(err, ErrTaken) {
			return port, err
		}
	}
	return p.Any(avoid...)
}

// Take reserves exactly this port, or returns ErrTaken.
func (p *Pool) Take(port int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, mine := p.held[port]
	if !mine {
		var err error
		if l, err = net.Listen("unix", "@penstock-port-"+strconv.Itoa(port)); err != nil {
			return fmt.Errorf("port %d: %w", port, ErrTaken)
		}
	}
	if probe, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err != nil {
		if !mine {
			l.Close()
		}
		return fmt.Errorf("port %d: %w", port, ErrTaken)
	} else {
		probe.Close()
	}
	if p.held == nil {
		p.held = map[int]net.Listener{}
	}
	p.held[port] = l
	return nil
}

// Release gives ports back; without arguments, all.
func (p *Pool) Release(ports ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(ports) == 0 {
		for port := range p.held {
			ports = append(ports, port)
		}
	}
	for _, port := range ports {
		if l := p.held[port]; l != nil {
			l.Close()
			delete(p.held, port)
		}
	}
}
