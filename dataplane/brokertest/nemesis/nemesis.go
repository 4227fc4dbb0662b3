package nemesis

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
)

// Workload is what a nemesis has to know of those who work on the cluster.
type Workload struct {
	// Topics are those whose partitions are moved; "leader" leads the first one's first.
	Topics     func() []string
	Partitions func(topic string) int32
	// Rest looks at the cluster when everything is healed. Brokers that end meanwhile
	// are started again.
	Rest func(context.Context)
	// Change is an admin call that the workload keeps book of; nil if the step is none.
	Change func(Step) func(context.Context) error
	// Coordinators are further roles: of groups and of transactional ids.
	Coordinators map[string]Coordinated
	Members      Members // nil if there are none
	// Loses says that what a cut holds of this link must be lost, not late; nil: none must.
	Loses func(a, b Party) bool
}

// Coordinated is what a coordinator is found by.
type Coordinated struct {
	Key  string
	Kind int8 // 0 a group, 1 a transactional id
}

// Members are clients with processes of their own.
type Members interface {
	// Number is how many have links of their own.
	Number() int
	// Do carries out a step of those with members in them; undo may be nil.
	Do(Step) (undo func(), err error)
}

// Nemesis carries a schedule out, alone, on the test's goroutine. Admin calls,
// which take their time, run beside it.
type Nemesis struct {
	*Rig
	Work Workload

	ctx     context.Context
	began   time.Time
	undo    []undoing
	down    map[int]bool  // killed by a step that will start it again
	asked   map[int]int   // brokers asked to stop since the last rest, with their process then
	changes chan struct{} // an admin call is under way
}

type undoing struct {
	at time.Time
	f  func()
}

// CarryOut returns after the last step, which is a rest as Draw makes it.
func (n *Nemesis) CarryOut(ctx context.Context, steps []Step) {
	n.ctx, n.began = ctx, time.Now()
	n.down, n.asked = map[int]bool{}, map[int]int{}
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
			n.Journal.Note("skipped", map[string]any{"step": s, "why": err.Error()})
			continue
		}
		n.Journal.Note("step", s)
	}
}

// until undoes what is over and starts brokers that ended by themselves, up to
// the next step's time.
func (n *Nemesis) until(at time.Time) {
	for time.Now().Before(at) {
		n.undoUpTo(time.Now())
		n.relaunch()
		time.Sleep(min(20*time.Millisecond, time.Until(at)))
	}
	n.undoUpTo(time.Now())
}

func (n *Nemesis) undoUpTo(now time.Time) {
	slices.SortStableFunc(n.undo, func(a, b undoing) int { return a.at.Compare(b.at) })
	for len(n.undo) > 0 && !n.undo[0].at.After(now) {
		f := n.undo[0].f
		n.undo = n.undo[1:]
		f()
	}
}

func (n *Nemesis) after(s Step, f func()) {
	n.undo = append(n.undo, undoing{time.Now().Add(s.For), f})
}

// relaunch is the supervisor: a broker may end when its disk is full, or when it
// finds no ZooKeeper at its start.
func (n *Nemesis) relaunch() {
	for i, b := range n.Brokers {
		if !n.down[i] && b.Ended() {
			n.Journal.Note("ended", i)
			n.down[i] = true
			n.undo = append(n.undo, undoing{time.Now().Add(time.Second), func() { n.launch(i) }})
		}
	}
}

func (n *Nemesis) launch(i int) {
	if b := n.Brokers[i]; b.Ended() {
		b.Launch()
	}
	n.down[i] = false
}

// rest heals everything and has the cluster looked at.
func (n *Nemesis) rest() {
	n.undoUpTo(time.Now().Add(time.Hour))
	n.changes <- struct{}{} // a change under way comes to its end
	<-n.changes
	// A stop may take seconds, of a broker that was cut off from ZooKeeper most of all. It would look
	// healthy until then, and at the last rest nobody would start it again.
	for i, pid := range n.asked {
		for b := n.Brokers[i]; n.ctx.Err() == nil && b.PID() == pid && !b.Ended(); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	clear(n.asked)
	// One that is about to end since its disk was full does so later.
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
	n.Work.Rest(n.ctx)
	close(looked)
	<-supervised
}

// broker finds out who has a role now, or who a number is; brokers count from 0
// here.
func (n *Nemesis) broker(name string) (int, error) {
	if i, err := strconv.Atoi(name); err == nil {
		if i >= len(n.Brokers) {
			return 0, fmt.Errorf("no broker %d", i)
		}
		return i, nil
	}
	if c, ok := n.Work.Coordinators[name]; ok {
		ctx, cancel := context.WithTimeout(n.ctx, time.Second)
		defer cancel()
		id, err := Coordinator(ctx, n.View.Client, c.Key, c.Kind)
		return int(id - n.First), err
	}
	topic := n.Work.Topics()[0]
	for _, asked := range n.IDs() { // whoever answers
		req := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
		ctx, cancel := context.WithTimeout(n.ctx, 300*time.Millisecond)
		resp, err := Ask[*kmsg.MetadataResponse](ctx, n.View.Client, asked, req)
		cancel()
		if err != nil || len(resp.Topics[0].Partitions) == 0 {
			continue
		}
		id := int32(-1)
		switch name {
		case "controller":
			id = resp.ControllerID
		case "leader":
			id = resp.Topics[0].Partitions[0].Leader
		}
		if id >= 0 {
			return int(id - n.First), nil
		}
	}
	return 0, fmt.Errorf("no %s", name)
}

// parties are those that a name stands for.
func (n *Nemesis) parties(name string) ([]Party, error) {
	var member int
	switch {
	case name == "zookeeper":
		return []Party{ZooKeeper}, nil
	case name == "clients":
		all := []Party{Clients}
		for i := range n.members() {
			all = append(all, Member(i))
		}
		return all, nil
	case n.members() > 0 && scanned(fmt.Sscanf(name, "member-%d", &member)):
		return []Party{Member(member)}, nil
	}
	i, err := n.broker(name)
	return []Party{Party(i)}, err
}

func scanned(n int, err error) bool { return n == 1 && err == nil }

func (n *Nemesis) members() int {
	if n.Work.Members == nil {
		return 0
	}
	return n.Work.Members.Number()
}

// pairs are the links between two names.
func (n *Nemesis) pairs(a, b string) ([]link, error) {
	as, err := n.parties(a)
	bs, err2 := n.parties(b)
	var all []link
	for _, from := range as {
		for _, to := range bs {
			if from != to {
				all = append(all, link{from, to})
			}
		}
	}
	return all, errors.Join(err, err2)
}

// up is a broker that runs now.
func (n *Nemesis) up(name string) (int, Broker, error) {
	id, err := n.broker(name)
	if err != nil {
		return 0, nil, err
	}
	if n.down[id] || n.Brokers[id].Ended() {
		return 0, nil, fmt.Errorf("broker %d is down", id)
	}
	return id, n.Brokers[id], nil
}

func (n *Nemesis) do(s Step) error {
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
		for i, b := range n.Brokers {
			if !n.down[i] && !b.Ended() {
				b.Kill()
				n.down[i] = true
				n.after(s, func() { n.launch(i) })
			}
		}
	case Restart:
		i, b, err := n.up(s.A)
		if err != nil {
			return err
		}
		n.asked[i] = b.PID()
		b.Signal(syscall.SIGTERM) // relaunch starts it again
	case Pause:
		_, b, err := n.up(s.A)
		if err != nil {
			return err
		}
		b.Signal(syscall.SIGSTOP)
		n.after(s, func() { b.Signal(syscall.SIGCONT) })
	case Cut:
		links, err := n.pairs(s.A, s.B)
		if err != nil {
			return err
		}
		for _, l := range links {
			n.cut(s, l.from, l.to, s.Both)
		}
	case Isolate:
		a, err := n.broker(s.A)
		if err != nil {
			return err
		}
		for i := range n.Brokers {
			if i != a {
				n.cut(s, Party(a), Party(i), true)
			}
		}
		n.cut(s, Party(a), ZooKeeper, true)
	case Slow:
		links, err := n.pairs(s.A, s.B)
		if err != nil {
			return err
		}
		for _, l := range links {
			n.Net.Slow(l.from, l.to, s.By)
			n.Net.Slow(l.to, l.from, s.By)
			n.after(s, func() { n.Net.Heal(l.from, l.to, false); n.Net.Heal(l.to, l.from, false) })
		}
	case Full:
		return n.fill(s)
	case Clock:
		id, err := n.broker(s.A)
		if err != nil {
			return err
		}
		b := n.Penstock.Brokers[id]
		n.after(s, func() {
			if err := SetClock(b, 0); err != nil {
				n.TB.Fatal(err)
			}
		})
		return SetClock(b, s.By)
	case NoEnsemble:
		n.Penstock.ZK.Kill()
		n.after(s, func() {
			if err := n.Penstock.ZK.Up(); err != nil {
				n.TB.Fatal(err)
			}
		})
	case Grow, Create, Reassign, Elect:
		return n.change(s)
	case KillMember, PauseMember, Replace, KillInTxn, Leave, Join:
		if n.members() == 0 {
			return errors.New("there are no members")
		}
		undo, err := n.Work.Members.Do(s)
		if err == nil && undo != nil {
			n.after(s, undo)
		}
		return err
	default:
		return fmt.Errorf("no such fault here: %s", s.Fault)
	}
	return nil
}

func (n *Nemesis) cut(s Step, a, b Party, both bool) {
	lose := s.Lose || n.Work.Loses != nil && n.Work.Loses(a, b)
	n.Net.Cut(a, b)
	if both {
		n.Net.Cut(b, a)
	}
	n.after(s, func() {
		n.Net.Heal(a, b, lose)
		if both {
			n.Net.Heal(b, a, lose)
		}
	})
}

// fill makes the broker's disk take a few KB more a file: a write across the
// limit is cut short, like one to a full disk.
func (n *Nemesis) fill(s Step) error {
	id, b, err := n.up(s.A)
	if err != nil {
		return err
	}
	largest := int64(0)
	logs, _ := filepath.Glob(filepath.Join(n.Penstock.Brokers[id].LogDir, n.Work.Topics()[0]+"-*", "*.log"))
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
func (n *Nemesis) change(s Step) error {
	select {
	case n.changes <- struct{}{}:
	default:
		return errors.New("a change is under way")
	}
	var own func(context.Context) error
	if n.Work.Change != nil {
		own = n.Work.Change(s)
	}
	go func() {
		defer func() { <-n.changes }()
		var err error
		switch {
		case own != nil:
			err = own(n.ctx)
		case s.Fault == Create:
			err = n.create()
		case s.Fault == Reassign:
			err = n.reassign()
		case s.Fault == Elect:
			err = n.Admin(n.ctx, func(ctx context.Context, cl *kadm.Client) error {
				_, err := cl.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
				return err
			})
		default:
			err = errors.New("no such change here")
		}
		n.Journal.Note("changed", map[string]any{"step": s, "err": fmt.Sprint(err)})
	}()
	return nil
}

func (n *Nemesis) create() error {
	return n.Admin(n.ctx, func(ctx context.Context, cl *kadm.Client) error {
		_, err := cl.CreateTopic(ctx, 4, int16(min(3, len(n.Brokers))), nil, fmt.Sprintf("extra-%d", time.Since(n.began).Milliseconds()))
		return err
	})
}

// reassign moves a partition of each topic to the next brokers.
func (n *Nemesis) reassign() error {
	brokers := len(n.Brokers)
	return n.Admin(n.ctx, func(ctx context.Context, cl *kadm.Client) error {
		var req kadm.AlterPartitionAssignmentsReq
		first := int32(time.Since(n.began).Milliseconds()) % int32(brokers)
		var to []int32
		for i := range int32(min(3, brokers)) {
			to = append(to, n.First+(first+i)%int32(brokers))
		}
		for _, topic := range n.Work.Topics() {
			req.Assign(topic, first%n.Work.Partitions(topic), to)
		}
		resp, err := cl.AlterPartitionAssignments(ctx, req)
		if err == nil {
			err = resp.Error()
		}
		return err
	})
}
