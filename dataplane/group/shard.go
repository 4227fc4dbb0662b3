package group

import (
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
)

// shard is one partition of the groups' log under this broker's leadership:
// from an OnLeader to the OnResign that ends it. The next leadership gets a
// shard of its own, so nothing that an old one started can touch its groups.
type shard struct {
	c         *Coordinator
	partition int32
	epoch     int32
	gone      atomic.Bool // given up; set before the groups are

	mu     sync.Mutex
	groups map[string]*group // nil while loading and after the end

	outMu    sync.Mutex
	idle     sync.Cond // on outMu: draining became false
	out      []appendOp
	draining bool
}

// appendOp is an append that was decided and has still to be issued.
type appendOp struct {
	recs []Record
	done func(error)
}

func newShard(c *Coordinator, partition, epoch int32) *shard {
	sh := &shard{c: c, partition: partition, epoch: epoch}
	sh.idle.L = &sh.outMu
	return sh
}

// find returns the group, creating it if asked to; nil, nil if there is none.
func (sh *shard) find(id string, create bool) (*group, *kerr.Error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.gone.Load() {
		return nil, kerr.NotCoordinator
	}
	if sh.groups == nil {
		return nil, kerr.CoordinatorLoadInProgress
	}
	g := sh.groups[id]
	if g == nil && create {
		g = newGroup(sh, id)
		sh.groups[g.id] = g
	}
	return g, nil
}

// forget takes a dead group out of the table.
func (sh *shard) forget(g *group) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.groups[g.id] == g {
		delete(sh.groups, g.id)
	}
}

// snapshot lists the groups; loading says that they are not there yet.
func (sh *shard) snapshot() (groups []*group, loading bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	groups = make([]*group, 0, len(sh.groups))
	for _, g := range sh.groups {
		groups = append(groups, g)
	}
	return groups, sh.groups == nil && !sh.gone.Load()
}

// publish opens the shard with the groups that were loaded.
func (sh *shard) publish(groups map[string]*group) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.gone.Load() {
		return false
	}
	sh.groups = groups
	return true
}

// abandon ends the shard: its groups are lost, who waits is answered.
func (sh *shard) abandon() {
	sh.gone.Store(true)
	sh.mu.Lock()
	groups := sh.groups
	sh.groups = nil
	sh.mu.Unlock()
	for _, g := range groups {
		g.do(g.lose)
	}
}

// enqueue appends to the queue of writes; called with the group's mutex held,
// which is what gives the log the order of the decisions.
func (sh *shard) enqueue(op appendOp) {
	sh.outMu.Lock()
	sh.out = append(sh.out, op)
	sh.outMu.Unlock()
}

// drain issues queued writes until there are none. Only one goroutine does so
// at a time; another's writes may be issued by it. No lock is held while the
// storage is called.
func (sh *shard) drain() {
	sh.outMu.Lock()
	defer sh.outMu.Unlock()
	if sh.draining {
		return
	}
	sh.draining = true
	for len(sh.out) > 0 {
		op := sh.out[0]
		sh.out[0] = appendOp{}
		sh.out = sh.out[1:]
		sh.outMu.Unlock()
		if sh.gone.Load() {
			op.done(kerr.NotLeaderForPartition)
		} else {
			sh.c.st.Append(sh.partition, op.recs, op.done)
		}
		sh.outMu.Lock()
	}
	sh.out = nil
	sh.draining = false
	sh.idle.Broadcast()
}

// waitIdle returns when no write of an abandoned shard is being issued any
// more; later ones are refused. The next leadership waits for this before it
// reads the log: otherwise a late write of the old one could follow what was
// read, acknowledged and yet unknown to the new groups.
func (sh *shard) waitIdle() {
	sh.outMu.Lock()
	defer sh.outMu.Unlock()
	for sh.draining {
		sh.idle.Wait()
	}
}
