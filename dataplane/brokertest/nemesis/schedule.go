package nemesis

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Fault names what a Step does.
type Fault string

// The faults. Those that last are undone after Step.For.
const (
	Kill       Fault = "kill"      // kill -9 of A, started again
	KillAll    Fault = "killall"   // of every broker at once
	Restart    Fault = "restart"   // SIGTERM to A, started again
	Pause      Fault = "pause"     // SIGSTOP of A
	Cut        Fault = "cut"       // from A to B, and back if Both
	Isolate    Fault = "isolate"   // A from all brokers and ZooKeeper, not from clients
	Slow       Fault = "slow"      // A and B
	Full       Fault = "full"      // A's disk takes a little more, and then no more
	NoEnsemble Fault = "zookeeper" // ZooKeeper killed, started again
	Clock      Fault = "clock"     // A's wall clock jumps By, and back
	Grow       Fault = "grow"      // a topic gets one more partition
	Create     Fault = "create"    // one more topic
	Reassign   Fault = "reassign"  // a partition gets its replicas elsewhere
	Elect      Fault = "elect"     // preferred leaders everywhere
	Rest       Fault = "rest"      // everything is healed and looked at

	// Of members, clients with processes of their own.
	KillMember  Fault = "kill-member"  // kill -9 of A, started again
	PauseMember Fault = "pause-member" // SIGSTOP of A, which comes back
	Replace     Fault = "replace"      // SIGSTOP of A, another takes its place at once, and then A comes back
	KillInTxn   Fault = "kill-in-txn"  // kill -9 of A when the next offsets that it commits in a transaction are answered for, started again
	Leave       Fault = "leave"        // A ends in order, and is started again
	Join        Fault = "join"         // one more member
)

// Step is one entry of a schedule. A and B are a broker's id, "zookeeper",
// "clients" (all of them), "member-N", or the role of a broker at that moment:
// "controller", "leader" and what the Mix has besides.
type Step struct {
	At    time.Duration `json:"at"`
	Fault Fault         `json:"fault"`
	A     string        `json:"a,omitempty"`
	B     string        `json:"b,omitempty"`
	Both  bool          `json:"both,omitempty"`
	Lose  bool          `json:"lose,omitempty"` // what a cut held is lost, not late
	For   time.Duration `json:"for,omitempty"`
	By    time.Duration `json:"by,omitempty"`
}

func (s Step) String() string {
	b, _ := json.Marshal(s)
	return string(b)
}

// Weight is how often a fault is drawn.
type Weight struct {
	Fault  Fault
	Weight int
}

// Mix is what a schedule is drawn from.
type Mix struct {
	Weights []Weight
	Roles   []string // of brokers, beside their ids
	Brokers int
	Members int // clients that are parties by themselves
	Without []Fault
}

// Plain breaks brokers, and what is between them and everybody.
var Plain = []Weight{
	{Kill, 20}, {KillAll, 2}, {Restart, 6}, {Pause, 14}, {Cut, 26}, {Isolate, 8}, {Slow, 8}, {Full, 4}, {NoEnsemble, 3},
	{Clock, 5}, {Grow, 4}, {Create, 3}, {Reassign, 6}, {Elect, 3},
}

// Draw makes the schedule of a seed: rounds of faults that overlap, with a rest
// at the end of each.
func Draw(seed uint64, length time.Duration, mix Mix) []Step {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	total := 0
	for _, w := range mix.Weights {
		total += w.Weight
	}
	// between draws so that 1 to 2 s is as likely as 2 to 4 s.
	between := func(lo, hi time.Duration) time.Duration {
		d := float64(lo) * math.Pow(float64(hi)/float64(lo), r.Float64())
		return time.Duration(d).Truncate(time.Millisecond)
	}
	broker := func() string {
		if i := r.IntN(len(mix.Roles) + 3); i < len(mix.Roles) {
			return mix.Roles[i]
		}
		return strconv.Itoa(r.IntN(mix.Brokers))
	}
	member := func() string { return fmt.Sprint("member-", r.IntN(mix.Members)) }
	party := func() string {
		switch r.IntN(4) {
		case 0:
			return "zookeeper"
		case 1:
			if mix.Members > 0 && r.IntN(2) == 0 {
				return member()
			}
			return "clients"
		default:
			return broker()
		}
	}
	var steps []Step
	round := min(length, 30*time.Second)
	next := round
	for at := between(200*time.Millisecond, time.Second); ; at += between(100*time.Millisecond, 4*time.Second) {
		if at >= next || at >= length {
			steps = append(steps, Step{At: min(at, length), Fault: Rest})
			if at >= length || length-at < 5*time.Second {
				return steps
			}
			next += round
			continue
		}
		pick := r.IntN(total)
		i := 0
		for ; pick >= mix.Weights[i].Weight; i++ {
			pick -= mix.Weights[i].Weight
		}
		s := Step{At: at, Fault: mix.Weights[i].Fault, For: between(100*time.Millisecond, 8*time.Second)}
		switch s.Fault {
		case Kill, Restart, Pause, Full, Isolate:
			s.A = broker()
		case Clock:
			s.A = broker()
			s.By = between(time.Second, 3*time.Hour) * time.Duration(1-2*r.IntN(2))
		case Cut:
			s.A, s.B, s.Both = broker(), party(), r.IntN(2) == 0
			if r.IntN(2) == 0 {
				s.A, s.B = s.B, s.A
			}
		case Slow:
			s.A, s.B, s.By = broker(), party(), between(5*time.Millisecond, 500*time.Millisecond)
		case KillMember, PauseMember, Leave:
			s.A = member()
		case Replace:
			s.A, s.For = member(), s.For+2*time.Second
		case Grow, Create, Reassign, Elect:
			s.For = 0
		}
		s.Lose = r.IntN(2) == 0
		if !slices.Contains(mix.Without, s.Fault) {
			steps = append(steps, s)
		}
	}
}

// ReadSchedule takes the schedule out of a history's file.
func ReadSchedule(in io.Reader) ([]Step, error) {
	var steps []Step
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Schedule *Step }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		if line.Schedule != nil {
			steps = append(steps, *line.Schedule)
		}
	}
	return steps, lines.Err()
}
