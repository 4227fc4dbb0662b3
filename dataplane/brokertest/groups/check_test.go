package groups

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	testSession   = 10 * time.Second
	testRebalance = 20 * time.Second
)

// story is a history made by hand: times are seconds since its start.
type story struct {
	h        *History
	protocol Protocol
}

func newStory(p Protocol) *story { return &story{NewHistory(), p} }

func (s *story) at(sec float64) int64 { return s.h.start + int64(sec*float64(time.Second)) }

func (s *story) add(sec float64, member string, e Event) {
	e.At, e.Group, e.Member = s.at(sec), "g", member
	s.h.Add(e)
}

func (s *story) started(sec float64, member, instance string) {
	s.add(sec, member, Event{Kind: Started, Protocol: s.protocol, Instance: instance, Session: testSession, Rebalance: testRebalance})
}

// beats is a heartbeat that was answered at once.
func (s *story) beats(sec float64, member string, generation int32) {
	s.add(sec, member, Event{Kind: Alive, Key: int16(kmsg.Heartbeat), Sent: s.at(sec), Generation: generation})
}

func (s *story) rebalancing(sec float64, member string, generation int32) {
	s.add(sec, member, Event{Kind: Alive, Key: int16(kmsg.Heartbeat), Sent: s.at(sec), Generation: generation, Rebalancing: true})
}

func (s *story) told(sec float64, member string, epoch int32, partitions ...int32) {
	s.add(sec, member, Event{Kind: Alive, Key: int16(kmsg.ConsumerGroupHeartbeat), Sent: s.at(sec), Generation: epoch, Told: true, Partitions: partitions})
}

func (s *story) owns(sec float64, member string, partitions ...int32) {
	s.add(sec, member, Event{Kind: Owns, Partitions: partitions})
}

func (s *story) released(sec float64, member string, partitions ...int32) {
	s.add(sec, member, Event{Kind: Released, Partitions: partitions})
}

func (s *story) fenced(sec float64, member string, err *kerr.Error) {
	s.add(sec, member, Event{Kind: Fenced, Key: int16(kmsg.Heartbeat), Code: err.Code})
}

func (s *story) commits(sec float64, member string, offset int64, err *kerr.Error) {
	s.add(sec, member, Event{Kind: Commits, Offsets: map[int32]int64{0: offset}})
	e := Event{Kind: Committed, Sent: s.at(sec), Offsets: map[int32]int64{0: offset}}
	if err != nil {
		e.Code = err.Code
	}
	s.add(sec+0.1, member, e)
}

func (s *story) sees(sec float64, offset int64) {
	s.add(sec, "", Event{Kind: Seen, Sent: s.at(sec - 0.1), Offsets: map[int32]int64{0: offset}})
}

// coordinators are two: at second 9 the second one has taken the group over, and a commits 8.
func coordinators() *story {
	s := newStory(Eager)
	s.started(0, "a", "")
	s.add(0, "", Event{Kind: Reigns, Broker: "first"})
	s.commits(5, "a", 5, nil)
	s.add(9, "", Event{Kind: Reigns, Broker: "second"})
	s.commits(11, "a", 8, nil)
	return s
}

// crowd is so many members who join in one rebalance, and a rest, until second 6.
func crowd(n int) *story {
	s := newStory(Eager)
	for i := range n {
		s.started(1, fmt.Sprint("m", i), "")
	}
	s.still(n, 5, 1)
	return s
}

// still has the members of a crowd in one generation, a rest's end a second later, and
// all of them there after it.
func (s *story) still(n int, sec float64, generation int32) {
	for i := range n {
		s.beats(sec, fmt.Sprint("m", i), generation)
		s.beats(sec+2, fmt.Sprint("m", i), generation)
	}
	s.add(sec+1, "", Event{Kind: Rested})
}

func (s *story) kinds() []string {
	var kinds []string
	found, _ := s.h.Check()
	for _, a := range found {
		kinds = append(kinds, a.Kind)
	}
	return slices.Compact(kinds)
}

// handOver is a history as it should be: a owns the partition and commits 5, b joins,
// a releases, b owns it and commits 7.
func handOver() *story {
	s := newStory(Cooperative)
	s.started(0, "a", "")
	s.beats(1, "a", 1)
	s.owns(1, "a", 0)
	s.commits(2, "a", 5, nil)
	s.sees(3, 5)
	s.started(3, "b", "")
	s.rebalancing(4, "a", 1)
	s.released(5, "a", 0)
	s.beats(6, "a", 3)
	s.beats(6, "b", 3)
	s.owns(6, "b", 0)
	s.commits(7, "b", 7, nil)
	s.sees(8, 7)
	return s
}

// TestCheckFindsEachAnomaly has one small history for each kind.
func TestCheckFindsEachAnomaly(t *testing.T) {
	for name, test := range map[string]struct {
		kind  string
		story func() *story
	}{
		"all is well": {"", handOver},
		"given to c before a released it": {"two owners", func() *story {
			s := handOver()
			s.started(3, "c", "")
			s.beats(4.5, "c", 2)
			s.owns(4.5, "c", 0)
			s.released(5.5, "c", 0)
			return s
		}},
		"given to b within a's session": {"two owners", func() *story {
			s := newStory(Eager)
			s.started(0, "a", "")
			s.beats(1, "a", 1)
			s.owns(1, "a", 0) // and then nothing
			s.started(2, "b", "")
			s.beats(10, "b", 2)
			s.owns(10.9, "b", 0)
			return s
		}},
		"fenced without reason, and told after b": {"two owners", func() *story {
			s := newStory(Eager)
			s.started(0, "a", "")
			s.beats(1, "a", 1)
			s.owns(1, "a", 0)
			s.started(2, "b", "")
			s.beats(3, "b", 2)
			s.owns(3, "b", 0)
			s.fenced(4, "a", kerr.IllegalGeneration)
			s.released(4.1, "a", 0)
			return s
		}},
		"a later heartbeat proves that a was a member all the time": {"two owners", func() *story {
			s := newStory(Eager)
			s.started(0, "a", "")
			s.beats(1, "a", 1)
			s.owns(1, "a", 0)
			s.started(2, "b", "")
			s.beats(12, "b", 1)
			s.owns(12, "b", 0)
			s.beats(13, "a", 1)
			return s
		}},
		"KIP-848: within the rebalance timeout that a has to release": {"two owners", func() *story {
			s := newStory(Consumer)
			s.started(0, "a", "")
			s.told(1, "a", 1, 0, 1)
			s.owns(1, "a", 0, 1)
			s.told(5, "a", 1, 0) // 1 is to go
			for sec := 6.0; sec < 24; sec++ {
				s.beats(sec, "a", 1)
			}
			s.started(5, "b", "")
			s.told(24, "b", 2, 1)
			s.owns(24, "b", 1)
			return s
		}},
		"a static member, and another with another instance id": {"two owners", func() *story {
			s := newStory(Eager)
			s.started(0, "a", "i")
			s.beats(1, "a", 1)
			s.owns(1, "a", 0)
			s.started(2, "b", "j")
			s.add(2, "b", Event{Kind: Joining, Key: int16(kmsg.JoinGroup), Sent: s.at(2), Instance: "j"})
			s.beats(2.5, "b", 2)
			s.owns(3, "b", 0)
			return s
		}},
		"expelled before its session was over": {"fenced early", func() *story {
			s := handOver()
			s.fenced(10, "a", kerr.UnknownMemberID)
			return s
		}},
		"a's commit after b owns": {"stray commit", func() *story {
			s := handOver()
			s.commits(8.5, "a", 7, nil)
			return s
		}},
		"below an acknowledged commit": {"offset back", func() *story {
			s := handOver()
			s.sees(9, 6)
			return s
		}},
		"below what was seen, which nobody had acknowledged": {"offset back", func() *story {
			s := handOver()
			s.add(9, "b", Event{Kind: Commits, Offsets: map[int32]int64{0: 9}})
			s.sees(10, 9)
			s.sees(11, 7)
			return s
		}},
		"gone": {"offset back", func() *story {
			s := handOver()
			s.sees(9, -1)
			return s
		}},
		"more than was sent": {"offset invented", func() *story {
			s := handOver()
			s.sees(9, 8)
			return s
		}},
		"a rebalance a second": {"storm", func() *story {
			s := handOver()
			for g := range int32(20) {
				s.beats(9+float64(g), "a", 4+g)
			}
			return s
		}},
		"a coordinator that has lost an offset at its load": {"offset back", func() *story {
			s := coordinators()
			s.add(13, "", Event{Kind: Seen, Sent: s.at(12), Broker: "second", Offsets: map[int32]int64{0: 5}})
			return s
		}},
		"rebalances after a rest that changes before it would have allowed": {"storm", func() *story {
			s := crowd(20)
			for g := range int32(3) {
				s.beats(32+float64(g), "m0", 2+g)
			}
			s.still(20, 35, 4)
			return s
		}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			got := test.story().kinds()
			if test.kind == "" && len(got) > 0 || test.kind != "" && !slices.Equal(got, []string{test.kind}) {
				t.Errorf("found %q", got)
			}
		})
	}
}

// TestCheckAllowsWhatIsAllowed has what looks bad and is not.
func TestCheckAllowsWhatIsAllowed(t *testing.T) {
	// silent is a member that owns the partition and is heard of last at second 1.
	silent := func(p Protocol, instance string) *story {
		s := newStory(p)
		s.started(0, "a", instance)
		s.beats(1, "a", 1)
		s.owns(1, "a", 0)
		s.started(2, "b", "")
		return s
	}
	for name, story := range map[string]func() *story{
		"a deposed coordinator that tells older offsets": func() *story {
			s := coordinators()
			s.add(13, "", Event{Kind: Seen, Sent: s.at(12), Broker: "first", Offsets: map[int32]int64{0: 5}})
			return s
		},
		"a rebalance for each change between two rests": func() *story {
			s := crowd(20)
			s.started(9, "m20", "")
			s.beats(10, "m20", 2)
			s.fenced(20, "m0", kerr.UnknownMemberID) // its session was over
			s.beats(21, "m0", 4)
			s.still(21, 25, 4)
			return s
		},
		"a killed coordinator's group between two rests": func() *story {
			s := crowd(20)
			s.add(9, "", Event{Kind: Moved})
			s.still(20, 25, 3)
			return s
		},
		"given on when the session was over, and the first is back": func() *story {
			s := silent(Eager, "")
			s.beats(11.1, "b", 2)
			s.owns(11.1, "b", 0)
			s.commits(14, "a", 4, kerr.UnknownMemberID)
			s.fenced(15, "a", kerr.UnknownMemberID)
			s.released(15.1, "a", 0)
			return s
		},
		"given on when the rebalance timeout was over": func() *story {
			s := silent(Eager, "")
			for sec := 2.0; sec < 21; sec++ {
				s.rebalancing(sec, "a", 1)
			}
			s.beats(21.2, "b", 2)
			s.owns(21.2, "b", 0)
			s.fenced(22, "a", kerr.UnknownMemberID)
			s.released(25, "a", 0)
			return s
		},
		"KIP-848: given on when the rebalance timeout was over": func() *story {
			s := silent(Consumer, "")
			s.told(2, "a", 1, 5)
			for sec := 3.0; sec < 23; sec++ {
				s.beats(sec, "a", 1)
			}
			s.beats(22.5, "b", 2)
			s.owns(22.5, "b", 0)
			s.fenced(23, "a", kerr.UnknownMemberID)
			return s
		},
		"replaced by a process with its instance id": func() *story {
			s := silent(Eager, "i")
			s.started(3, "c", "i")
			s.add(3.5, "c", Event{Kind: Joining, Key: int16(kmsg.JoinGroup), Sent: s.at(3.5), Instance: "i"})
			s.beats(3.6, "c", 1)
			s.owns(3.6, "c", 0)
			s.fenced(5, "a", kerr.FencedInstanceID)
			return s
		},
		"kept up by a coordinator that was deposed": func() *story {
			s := silent(Eager, "")
			s.add(5, "", Event{Kind: Reigns, Broker: "new"})
			for sec := 2.0; sec < 30; sec++ {
				s.add(sec, "a", Event{Kind: Alive, Key: int16(kmsg.Heartbeat), Sent: s.at(sec), Generation: 1, Broker: "old"})
			}
			s.beats(17, "b", 2)
			s.owns(17, "b", 0)
			s.fenced(30.5, "a", kerr.UnknownMemberID)
			return s
		},
		"answers that cross": func() *story {
			s := handOver()
			s.add(9, "", Event{Kind: Seen, Sent: s.at(6.9), Offsets: map[int32]int64{0: 5}}) // asked before 7 was acknowledged
			s.add(9, "b", Event{Kind: Commits, Offsets: map[int32]int64{0: 8}})              // its answer is lost
			s.sees(9.5, 8)
			return s
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			if got, _ := story().h.Check(); len(got) > 0 {
				t.Errorf("found %v", got)
			}
		})
	}
}

// TestEndOfAnIntervalIsTheFirstOfItsFences takes away one fence after the other.
func TestEndOfAnIntervalIsTheFirstOfItsFences(t *testing.T) {
	for _, test := range []struct {
		what string
		add  func(s *story)
		want float64
	}{
		{"nothing but the session", func(*story) {}, 11},
		{"a heartbeat", func(s *story) { s.beats(4, "a", 1) }, 14},
		{"a rebalance it does not take part in", func(s *story) {
			for sec := 2.0; sec < 30; sec++ {
				s.rebalancing(sec, "a", 1)
			}
		}, 21},
		{"a fence", func(s *story) { s.fenced(3, "a", kerr.UnknownMemberID) }, 3},
		{"a release", func(s *story) { s.released(2, "a", 0) }, 2},
	} {
		s := newStory(Eager)
		s.started(0, "a", "")
		s.beats(1, "a", 1)
		s.owns(1, "a", 0)
		test.add(s)
		got := intervals(s.h.events["g"])[0]
		if len(got) != 1 || got[0].to != s.at(test.want) {
			t.Errorf("%s: %+v, want an end at %v s", test.what, got, test.want)
		}
	}
}

func TestLoadsAreReadFromABrokersLog(t *testing.T) {
	p, began, ok := loading(`time=2026-11-30T15:10:18.181Z level=INFO msg="groups loaded" broker=0 partition=3 epoch=2 number=1 unreadable=0 took=6.867079ms`)
	if want := time.Date(2026, 11, 30, 15, 10, 18, 173132921, time.UTC); !ok || p != 3 || !began.Equal(want) {
		t.Errorf("%d, %v, %v", p, began, ok)
	}
	if _, _, ok := loading(`time=2026-11-30T15:10:18.181Z level=INFO msg="transactions loaded" broker=0 partition=3 epoch=2 number=1 unreadable=0 took=1ms`); ok {
		t.Error("another line is taken for one")
	}
}

func TestChangesAreCountedOnceEach(t *testing.T) {
	s := handOver() // two starts, and both go in the end
	s.fenced(17, "a", kerr.UnknownMemberID)
	s.fenced(17.5, "a", kerr.UnknownMemberID) // once more for the same
	s.add(18, "", Event{Kind: Moved})
	_, counts := s.h.Check()
	if c := counts["g"]; c.Changes != 6 || c.Moves != 1 || c.Generations != 3 {
		t.Errorf("%+v", c)
	}
}
