package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"penstock/dataplane/brokertest"
)

// nemesis carries a schedule out, alone, on the test's goroutine. Admin calls,
// which take their time, run beside it.
type nemesis struct {
	*run
	ctx context.Context

	began   time.Time
	undo    []undoing
	down    map[int]bool  // killed by a step that will start it again
	changes chan struct{} // an admin call is under way
}

type undoing struct {
	at time.Time
	f  func()
}

func (n *nemesis) carryOut(steps []Step) {
	n.began = time.Now()
	n.down = map[int]bool{}
	n.changes = make(chan struct{}, 1)
	late := time.Duration(0) // what rests and slow steps have taken, which the schedule does not know
	for _, s := range steps {
		n.until(n.began.Add(s.At + late))
		late = max(late, time.Since(n.began)-s.At)
		if s.Fault == Rest {
			n.rest()
			continue
		}
		if err := n.do(s); err != nil {
			n.h.Note("skipped", map[string]any{"step": s, "why": err.Error()})
			continue
		}
		n.h.Note("step", s)
	}
}

// until undoes what is over and starts brokers that ended by themselves, up to
// the next step's time.
func (n *nemesis) until(at time.Time) {
	for time.Now().Before(at) {
		n.undoUpTo(time.Now())
		n.relaunch()
		time.Sleep(min(20*time.Millisecond, time.Until(at)))
	}
	n.undoUpTo(time.Now())
}

func (n *nemesis) undoUpTo(now time.Time) {
	slices.SortStableFunc(n.undo, func(a, b undoing) int { return a.at.Compare(b.at) })
	for len(n.undo) > 0 && !n.undo[0].at.After(now) {
		f := n.undo[0].f
		n.undo = n.undo[1:]
		f()
	}
}

func (n *nemesis) after(s Step, f func()) {
	n.undo = append(n.undo, undoing{time.Now().Add(s.For), f})
}

// relaunch is the supervisor: a broker may end when its disk is full, or when it
// finds no ZooKeeper at its start.
func (n *nemesis) relaunch() {
	for i, b := range n.c.Brokers {
		if !n.down[i] && b.Ended() {
			n.h.Note("ended", i)
			n.down[i] = true
			n.undo = append(n.undo, undoing{time.Now().Add(time.Second), func() { n.launch(i) }})
		}
	}
}

func (n *nemesis) launch(i int) {
	if b := n.c.Brokers[i]; b.Ended() {
		b.Launch()
	}
	n.down[i] = false
}

// rest heals everything and looks at the cluster.
func (n *nemesis) rest() {
	n.h.Note("rest", n.h.Counts())
	n.undoUpTo(time.Now().Add(time.Hour))
	n.changes <- struct{}{} // a change under way comes to its end
	<-n.changes
	// One that was asked to stop, or is about to since its disk was full, ends later.
	looked, supervised := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(supervised)
		for tick := time.Tick(50 * time.Millisecond); ; {
			n.relaunch()
			n.undoUpTo(time.Now())
			select {
			case <-looked:
				return
			case <-tick:
			}
		}
	}()
	n.gate.shut()
	n.look(n.ctx)
	close(looked)
	<-supervised
	n.gate.let()
	n.h.Note("healed", n.h.Counts())
}

// broker finds out who has a role now, or who a number is.
func (n *nemesis) broker(name string) (int, error) {
	if id, err := strconv.Atoi(name); err == nil {
		if id >= len(n.c.Brokers) {
			return 0, fmt.Errorf("no broker %d", id)
		}
		return id, nil
	}
	id := int32(-1)
	for i := range n.c.Brokers { // whoever answers
		req := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &n.names[0]
		req.Topics = append(req.Topics, t)
		ctx, cancel := context.WithTimeout(n.ctx, 300*time.Millisecond)
		resp, err := ask[*kmsg.MetadataResponse](ctx, n.readers[0].v.cl, int32(i), req)
		cancel()
		if err != nil || len(resp.Topics[0].Partitions) == 0 {
			continue
		}
		switch name {
		case "controller":
			id = resp.ControllerID
		case "leader":
			id = resp.Topics[0].Partitions[0].Leader
		}
		if id >= 0 {
			return int(id), nil
		}
	}
	return 0, fmt.Errorf("no %s", name)
}

func (n *nemesis) party(name string) (Party, error) {
	switch name {
	case "zookeeper":
		return ZooKeeper, nil
	case "clients":
		return Clients, nil
	}
	id, err := n.broker(name)
	return Party(id), err
}

// up is a broker that runs now.
func (n *nemesis) up(name string) (int, *brokertest.Node, error) {
	id, err := n.broker(name)
	if err != nil {
		return 0, nil, err
	}
	if n.down[id] || n.c.Brokers[id].Ended() {
		return 0, nil, fmt.Errorf("broker %d is down", id)
	}
	return id, n.c.Brokers[id], nil
}

func (n *nemesis) do(s Step) error {
	switch s.Fault {
	case Kill:
		id, b, err := n.up(s.A)
		if err != nil {
			return err
		}
		b.Kill()
		n.down[id] = true
		n.after(s, func() { n.launch(id) })
	case KillAll:
		for i, b := range n.c.Brokers {
			if !n.down[i] && !b.Ended() {
				b.Kill()
				n.down[i] = true
				n.after(s, func() { n.launch(i) })
			}
		}
	case Restart:
		_, b, err := n.up(s.A)
		if err != nil {
			return err
		}
		b.Signal(syscall.SIGTERM) // relaunch starts it again
	case Pause:
		_, b, err := n.up(s.A)
		if err != nil {
			return err
		}
		b.Signal(syscall.SIGSTOP)
		n.after(s, func() { b.Signal(syscall.SIGCONT) })
	case Cut:
		a, err := n.party(s.A)
		b, err2 := n.party(s.B)
		if err = errors.Join(err, err2); err != nil {
			return err
		}
		n.cut(s, a, b, s.Both)
	case Isolate:
		a, err := n.party(s.A)
		if err != nil {
			return err
		}
		for i := range n.c.Brokers {
			if Party(i) != a {
				n.cut(s, a, Party(i), true)
			}
		}
		n.cut(s, a, ZooKeeper, true)
	case Slow:
		a, err := n.party(s.A)
		b, err2 := n.party(s.B)
		if err = errors.Join(err, err2); err != nil {
			return err
		}
		n.net.Slow(a, b, s.By)
		n.net.Slow(b, a, s.By)
		n.after(s, func() { n.net.Heal(a, b, false); n.net.Heal(b, a, false) })
	case Full:
		return n.fill(s)
	case Clock:
		id, err := n.broker(s.A)
		if err != nil {
			return err
		}
		b := n.c.Brokers[id]
		n.after(s, func() {
			if err := setClock(b, 0); err != nil {
				n.t.Fatal(err)
			}
		})
		return setClock(b, s.By)
	case NoEnsemble:
		n.c.ZK.Kill()
		n.after(s, func() {
			if err := n.c.ZK.Up(); err != nil {
				n.t.Fatal(err)
			}
		})
	case Grow, Create, Reassign, Elect:
		return n.change(s)
	default:
		return fmt.Errorf("no such fault here: %s", s.Fault)
	}
	return nil
}

func (n *nemesis) cut(s Step, a, b Party, both bool) {
	if a == b {
		return
	}
	n.net.Cut(a, b)
	if both {
		n.net.Cut(b, a)
	}
	n.after(s, func() {
		n.net.Heal(a, b, s.Lose)
		if both {
			n.net.Heal(b, a, s.Lose)
		}
	})
}

// fill makes the broker's disk take a few KB more a file: a write across the
// limit is cut short, like one to a full disk.
func (n *nemesis) fill(s Step) error {
	_, b, err := n.up(s.A)
	if err != nil {
		return err
	}
	largest := int64(0)
	logs, _ := filepath.Glob(filepath.Join(b.LogDir, n.names[0]+"-*", "*.log"))
	for _, f := range logs {
		if st, err := os.Stat(f); err == nil {
			largest = max(largest, st.Size())
		}
	}
	pid := b.PID()
	limit := unix.Rlimit{Cur: uint64(largest) + 2000, Max: math.MaxUint64}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		return err
	}
	n.after(s, func() {
		_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: math.MaxUint64, Max: math.MaxUint64}, nil) // it may be gone
	})
	return nil
}

// change starts an admin call, unless one is under way.
func (n *nemesis) change(s Step) error {
	select {
	case n.changes <- struct{}{}:
	default:
		return errors.New("a change is under way")
	}
	go func() {
		defer func() { <-n.changes }()
		var err error
		switch s.Fault {
		case Grow:
			err = n.grow()
		case Create:
			err = n.create()
		case Reassign:
			err = n.reassign()
		case Elect:
			err = n.admin(n.ctx, func(ctx context.Context, cl *kadm.Client) error {
				_, err := cl.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
				return err
			})
		}
		n.h.Note("changed", map[string]any{"step": s, "err": fmt.Sprint(err)})
	}()
	return nil
}

const maxPartitions = 8

// grow gives the topic with the fewest partitions one more.
func (n *nemesis) grow() error {
	topic := slices.MinFunc(n.names, func(a, b string) int { return int(n.partitions(a) - n.partitions(b)) })
	next := n.partitions(topic)
	if next >= maxPartitions {
		return errors.New("large enough")
	}
	n.mu.Lock()
	n.wanted[topic] = next + 1
	n.mu.Unlock()
	return n.growTo(n.ctx, topic, next+1)
}

func (n *nemesis) create() error {
	return n.admin(n.ctx, func(ctx context.Context, cl *kadm.Client) error {
		_, err := cl.CreateTopic(ctx, 4, int16(min(3, len(n.c.Brokers))), nil, fmt.Sprintf("extra-%d", time.Since(n.began).Milliseconds()))
		return err
	})
}

// reassign moves the first partition of a topic to the next brokers.
func (n *nemesis) reassign() error {
	brokers := len(n.c.Brokers)
	return n.admin(n.ctx, func(ctx context.Context, cl *kadm.Client) error {
		var req kadm.AlterPartitionAssignmentsReq
		first := int32(time.Since(n.began).Milliseconds()) % int32(brokers)
		var to []int32
		for i := range int32(min(3, brokers)) {
			to = append(to, (first+i)%int32(brokers))
		}
		for _, topic := range n.names {
			req.Assign(topic, first%n.partitions(topic), to)
		}
		resp, err := cl.AlterPartitionAssignments(ctx, req)
		if err == nil {
			err = resp.Error()
		}
		return err
	})
}
