package groups

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Step is something that is done to a group's members.
type Step string

// The steps.
const (
	Join     Step = "join"     // a new member
	Leave    Step = "leave"    // a member closes; a static one stays in the group until its session ends
	Die      Step = "die"      // its connections are cut for ever, and it says nothing
	Hold     Step = "hold"     // what it sends and gets is late, by up to two sessions
	Slow     Step = "slow"     // its next release takes up to two rebalance timeouts
	Restart  Step = "restart"  // a static member closes and is started again
	Replace  Step = "replace"  // a second process takes a static member's place while it runs (classic)
	KillProc Step = "killproc" // kill -9 of a worker with all that live in it
	Freeze   Step = "freeze"   // SIGSTOP of a worker, for up to two sessions
	Move     Step = "move"     // kill -9 of the coordinator, started again
)

var weights = []struct {
	step   Step
	weight int
}{{Join, 26}, {Leave, 16}, {Die, 10}, {Hold, 12}, {Slow, 5}, {Restart, 8}, {Replace, 4}, {KillProc, 2}, {Freeze, 5}, {Move, 3}}

func (r *run) draw() Step {
	total := 0
	for _, w := range weights {
		total += w.weight
	}
	for {
		n := r.r.IntN(total)
		i := 0
		for ; n >= weights[i].weight; i++ {
			n -= weights[i].weight
		}
		if s := weights[i].step; len(r.o.Only) == 0 || slices.Contains(r.o.Only, s) {
			return s
		}
	}
}

// upTo draws a time.
func (r *run) upTo(d time.Duration) time.Duration {
	return d/20 + time.Duration(r.r.Int64N(int64(d)))
}

// churn does steps for a time.
func (r *run) churn(length time.Duration) {
	for end := time.Now().Add(length); time.Now().Before(end); {
		r.until(time.Now().Add(r.upTo(2 * r.o.Pace)))
		g := r.o.Groups[r.r.IntN(len(r.o.Groups))]
		step := r.draw()
		switch have := len(r.pending(g.Name)); {
		case have < g.Members*2/3:
			step = Join
		case step == Join && have >= g.Members:
			continue
		}
		_ = r.do(step, g) // often there is nobody to do it to
	}
}

// until waits, and undoes meanwhile what is over.
func (r *run) until(at time.Time) {
	for {
		slices.SortStableFunc(r.undo, func(a, b undoing) int { return a.at.Compare(b.at) })
		for len(r.undo) > 0 && !r.undo[0].at.After(time.Now()) {
			f := r.undo[0].f
			r.undo = r.undo[1:]
			f()
		}
		r.supervise()
		left := time.Until(at)
		if left <= 0 {
			return
		}
		time.Sleep(min(left, 20*time.Millisecond))
	}
}

func (r *run) after(d time.Duration, f func()) {
	r.undo = append(r.undo, undoing{time.Now().Add(d), f})
}

// pick draws a living member of the group whose worker runs.
func (r *run) pick(g Group, static bool) (string, error) {
	running := r.running()
	var all []string
	for _, name := range r.h.living(g.Name) {
		if slices.Contains(running, r.where[name]) && (!static || r.born[name].Instance != "") {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return "", errNobody
	}
	return all[r.r.IntN(len(all))], nil
}

func (r *run) do(step Step, g Group) error {
	switch step {
	case Join:
		r.start(g, r.fresh(g))
		return nil
	case KillProc, Freeze:
		return r.doToWorker(step)
	case Move:
		return r.move(g)
	}
	name, err := r.pick(g, step == Restart || step == Replace)
	if err != nil {
		return err
	}
	switch step {
	case Leave:
		r.ask(name, Order{Do: "leave", Member: name})
	case Die:
		r.ask(name, Order{Do: "die", Member: name})
	case Hold:
		r.ask(name, Order{Do: "hold", Member: name, For: r.upTo(2 * r.o.Session)})
	case Slow:
		r.ask(name, Order{Do: "slow", Member: name, For: r.upTo(2 * r.o.Rebalance)})
	case Restart:
		r.ask(name, Order{Do: "leave", Member: name})
		r.after(r.upTo(r.o.Session), func() { r.start(g, r.born[name].Instance) })
	case Replace:
		if g.Protocol == Consumer {
			return errNobody // it would be refused until the first is gone
		}
		r.start(g, r.born[name].Instance)
		r.after(r.upTo(r.o.Session), func() { r.ask(name, Order{Do: "leave", Member: name}) })
	}
	return nil
}

// doToWorker kills or freezes a process, as long as another runs.
func (r *run) doToWorker(step Step) error {
	all := r.running()
	if len(all) < 2 {
		return errNobody
	}
	w := all[r.r.IntN(len(all))]
	if step == Freeze {
		length, peace := r.upTo(2*r.o.Session), time.Duration(0)
		if r.o.Alone {
			length, peace = 2*r.o.Session, 3*r.o.Session
		}
		w.signal(syscall.SIGSTOP)
		r.frozen[w] = true
		r.after(length, func() {
			w.signal(syscall.SIGCONT)
			delete(r.frozen, w)
		})
		r.until(time.Now().Add(peace))
		return nil
	}
	w.kill()
	r.readLogs()
	for name, on := range r.where {
		if on == w {
			r.h.Lost(name)
			delete(r.where, name)
		}
	}
	r.addWorker()
	return nil
}

// move kills the group's coordinator.
func (r *run) move(g Group) error {
	ctx, cancel := context.WithTimeout(r.ctx, 3*time.Second)
	defer cancel()
	c := r.adm.FindGroupCoordinators(ctx, g.Name)[g.Name]
	if c.Err != nil {
		return c.Err
	}
	id := int(c.NodeID)
	if id < 0 || id >= len(r.c.Brokers) || len(r.down) > 0 {
		return fmt.Errorf("no broker to kill, %d are down", len(r.down))
	}
	for _, g := range r.o.Groups { // it may be the others' as well
		r.h.Add(Event{At: now(), Kind: Moved, Group: g.Name})
	}
	r.c.Brokers[id].Kill()
	r.down[id] = true
	r.after(r.upTo(4*time.Second), func() {
		r.c.Brokers[id].Launch()
		delete(r.down, id)
	})
	return nil
}

// supervise starts brokers that have ended by themselves: one may that loses ZooKeeper at its
// start, on a machine that has other work. It was killed as others are, to its groups.
func (r *run) supervise() {
	for i, b := range r.c.Brokers {
		if r.down[i] || !b.Ended() {
			continue
		}
		r.t.Logf("broker %d has ended by itself", i)
		for _, g := range r.o.Groups {
			r.h.Add(Event{At: now(), Kind: Moved, Group: g.Name})
		}
		b.Launch()
	}
}
