package txn

import (
	"penstock/dataplane/coordinator"
)

// loader gathers what the records of a partition amount to: the last record of a key
// counts.
type loader struct {
	c   *Coordinator
	sh  *shard
	ids map[string]*transaction
	bad int // records that could not be read
}

func newLoader(c *Coordinator, sh *shard) *loader {
	return &loader{c: c, sh: sh, ids: make(map[string]*transaction)}
}

// Add takes what comes next in the log.
func (l *loader) Add(x coordinator.Logged) {
	if x.End != coordinator.NotAnEnd {
		return
	}
	id, m, err := decode(x.Record)
	switch {
	case err == errForeign:
	case err != nil:
		l.bad++
		l.c.cfg.Logger.Error("a record of a transaction cannot be read", "partition", l.sh.Partition(), "offset", x.Offset, "err", err)
	case m == nil:
		delete(l.ids, id)
	default:
		if t := l.ids[id]; t != nil {
			t.meta = *m
			return
		}
		t := newTransaction(l.c, l.sh, id, *m)
		l.ids[t.id] = t
	}
}

// Entities gives the ids. What is decided goes on as soon as others can find it, and is
// not to be touched until then.
func (l *loader) Entities() (map[string]*transaction, int) {
	for _, t := range l.ids {
		t.pending = t.state.prepared()
	}
	return l.ids, l.bad
}

// resume carries on what was decided before this broker coordinated it.
func (t *transaction) resume(fx *effects) {
	if t.gone == alive && t.state.prepared() {
		t.sendMarkers(fx)
	}
}
