package nemesis

import (
	"context"
	"sync"
)

// Gate holds writers back while the cluster is looked at.
type Gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while writers may go on
}

// NewGate makes an open one.
func NewGate() *Gate {
	g := &Gate{open: make(chan struct{})}
	close(g.open)
	return g
}

// Shut closes an open gate.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

// Let opens a shut one.
func (g *Gate) Let() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

// Pass waits until the gate is open; false says that the context is over.
func (g *Gate) Pass(ctx context.Context) bool {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-ctx.Done():
		return false
	case <-open:
		return true
	}
}
