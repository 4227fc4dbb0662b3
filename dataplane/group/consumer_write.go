package group

import (
	"maps"
	"time"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/group/assignor"
)

// maxChangeBytes is the size of records from which on no further decision joins a batch:
// a batch has to fit into the topic's largest message (1 MiB by default), and one decision
// may rewrite the target of every member.
const maxChangeBytes = 256 << 10

// change is one or more decisions whose records are written in one batch.
type change struct {
	recs []coordinator.Record
	keys map[consumerKey]struct{} // of recs
	size int
	undo []func()                // takes it back, last first
	done []func(*effects, error) // called with the mutex held, when stored or taken back
}

// begin is the change that a decision goes into.
func (cg *consumerGroup) begin() *change {
	if n := len(cg.changes); n > 0 && !(n == 1 && cg.writing) && cg.changes[n-1].size < maxChangeBytes {
		return cg.changes[n-1]
	}
	ch := &change{keys: make(map[consumerKey]struct{})}
	cg.changes = append(cg.changes, ch)
	return ch
}

func (ch *change) write(k consumerKey, v []byte) {
	r := k.record(v)
	ch.recs = append(ch.recs, r)
	ch.size += len(r.Key) + len(r.Value) + 16
	ch.keys[k] = struct{}{}
}

// afterStored runs f when everything decided so far is stored, maybe at once, or with the
// error for which it was taken back.
func (cg *consumerGroup) afterStored(fx *effects, f func(*effects, error)) {
	if n := len(cg.changes); n > 0 {
		cg.changes[n-1].done = append(cg.changes[n-1].done, f)
		return
	}
	f(fx, nil)
}

// flush writes the next change, unless one is on its way: what is decided meanwhile goes
// into the one after it.
func (g *group) flush(fx *effects) {
	cg := g.consumer
	for cg != nil && g.consumer == cg && !cg.writing && len(cg.changes) > 0 { // what is done may end the consumer group
		ch := cg.changes[0]
		if len(ch.recs) == 0 {
			cg.changes = cg.changes[1:]
			for _, f := range ch.done {
				f(fx, nil)
			}
			continue
		}
		cg.writing = true
		recs := append(g.repair(ch), ch.recs...)
		g.append(fx, recs, func(fx *effects, err error) { g.changeStored(fx, cg, ch, err) })
	}
}

// changeStored goes on after a batch was stored or refused.
func (g *group) changeStored(fx *effects, cg *consumerGroup, ch *change, err error) {
	cg.writing = false
	if g.consumer != cg || g.state == stateDead {
		return // who waited has been answered
	}
	if err == nil {
		cg.changes = cg.changes[1:]
		clear(cg.unsure)
		g.stored = false
		for _, f := range ch.done {
			f(fx, nil)
		}
		g.flush(fx)
		return
	}
	g.c.cfg.Logger.Warn("consumer group not stored", "group", g.id, "err", err)
	failed := cg.changes
	cg.changes = nil
	for i := len(failed) - 1; i >= 0; i-- {
		for j := len(failed[i].undo) - 1; j >= 0; j-- {
			failed[i].undo[j]()
		}
	}
	cg.seen = nil
	// They may be in the log all the same, or come to be: the next batch says again
	// what is true.
	maps.Copy(cg.unsure, ch.keys)
	for _, c := range failed {
		for _, f := range c.done {
			f(fx, err)
		}
	}
	g.watchAll()
	if len(cg.changes) > 0 {
		g.flush(fx)
	}
}

// repair is the records that put right what a batch that failed may have left in the log,
// as it was before the change ch; those that ch writes anyway are left out. Tombstones and
// what members give up come before what others get.
func (g *group) repair(ch *change) []coordinator.Record {
	cg := g.consumer
	var gone, rest []coordinator.Record
	for k := range cg.unsure {
		if _, ok := ch.keys[k]; ok {
			continue
		}
		if v := g.encoded(k); v == nil {
			gone = append(gone, k.record(nil))
		} else {
			rest = append(rest, k.record(v))
		}
	}
	return append(append(g.classicTombstone(), gone...), rest...)
}

// encoded is the value that the group's record of that key should have, nil for none.
func (g *group) encoded(k consumerKey) []byte {
	cg := g.consumer
	m := cg.members[k.name]
	switch k.kind {
	case kindEpoch:
		if cg.epoch > 0 {
			return epochValue{cg.epoch, cg.hash}.encode()
		}
	case kindAssigned:
		if cg.assigned > 0 {
			return assignedValue{cg.assigned, millis(cg.at)}.encode()
		}
	case kindMember:
		if m != nil {
			return m.encode()
		}
	case kindTarget:
		if a, ok := cg.target[k.name]; ok {
			return encodeTarget(a)
		}
	case kindCurrent:
		if m != nil {
			return m.current().encode()
		}
	case kindRegex:
		if r := cg.regexes[k.name]; r != nil {
			return regexValue{r.topics, r.at}.encode()
		}
	}
	return nil
}

func (m *consumerMember) current() currentValue {
	return currentValue{m.epoch, m.previous, m.state, m.has, m.revoking}
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// setMember adds the member or puts it in the place of the one of its id, and writes of it
// what is new.
func (g *group) setMember(ch *change, m *consumerMember) {
	cg := g.consumer
	old := cg.members[m.id]
	cg.put(m.id, m)
	ch.undo = append(ch.undo, func() { cg.put(m.id, old) })
	was := old
	if old == nil {
		was = &consumerMember{id: m.id}
	}
	if old == nil || !m.sameMetadata(old) {
		ch.write(consumerKey{kindMember, g.id, m.id}, m.encode())
	}
	if !m.sameAssignment(was) {
		ch.write(consumerKey{kindCurrent, g.id, m.id}, m.current().encode())
	}
}

// dropMember removes the member with its target.
func (g *group) dropMember(ch *change, id string) {
	cg := g.consumer
	old, target := cg.members[id], cg.target[id]
	cg.put(id, nil)
	cg.putTarget(id, nil, false)
	ch.undo = append(ch.undo, func() {
		cg.put(id, old)
		cg.putTarget(id, target, target != nil)
	})
	for _, kind := range []uint16{kindCurrent, kindTarget, kindMember} {
		ch.write(consumerKey{kind, g.id, id}, nil)
	}
	cg.clocks[id].stop()
	delete(cg.clocks, id)
}

// dropUnmatched forgets the expressions that no member has any more.
func (g *group) dropUnmatched(ch *change) {
	for re := range g.consumer.regexes {
		if g.consumer.matched[re] == 0 {
			g.setRegex(ch, re, nil)
		}
	}
}

func (g *group) setTarget(ch *change, id string, a assignor.Assignment) {
	cg := g.consumer
	old, had := cg.target[id]
	cg.putTarget(id, a, true)
	ch.undo = append(ch.undo, func() { cg.putTarget(id, old, had) })
	ch.write(consumerKey{kindTarget, g.id, id}, encodeTarget(a))
}

// setRegex notes what an expression matches; nil forgets it.
func (g *group) setRegex(ch *change, re string, r *resolved) {
	cg := g.consumer
	old := cg.regexes[re]
	cg.putRegex(re, r)
	ch.undo = append(ch.undo, func() { cg.putRegex(re, old) })
	k := consumerKey{kindRegex, g.id, re}
	if r == nil {
		ch.write(k, nil)
		return
	}
	ch.write(k, regexValue{r.topics, r.at}.encode())
}

func (g *group) setEpoch(ch *change, epoch int32, hash int64) {
	cg := g.consumer
	oldEpoch, oldHash, oldRecord := cg.epoch, cg.hash, cg.partitionsRecord
	cg.epoch, cg.hash = epoch, hash
	ch.undo = append(ch.undo, func() { cg.epoch, cg.hash, cg.partitionsRecord = oldEpoch, oldHash, oldRecord })
	if cg.partitionsRecord { // the hash takes its place
		cg.partitionsRecord = false
		ch.write(consumerKey{kind: kindPartitions, group: g.id}, nil)
	}
	ch.write(consumerKey{kind: kindEpoch, group: g.id}, epochValue{epoch, hash}.encode())
}

func (g *group) setAssigned(ch *change, epoch int32, at time.Time) {
	cg := g.consumer
	oldEpoch, oldAt := cg.assigned, cg.at
	cg.assigned, cg.at = epoch, at
	ch.undo = append(ch.undo, func() { cg.assigned, cg.at = oldEpoch, oldAt })
	ch.write(consumerKey{kind: kindAssigned, group: g.id}, assignedValue{epoch, millis(at)}.encode())
}
