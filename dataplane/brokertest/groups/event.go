package groups

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Kind says what an Event is.
type Kind string

// The kinds of events. Those of an incarnation come from its worker.
const (
	Started   Kind = "started"   // an incarnation begins
	Ended     Kind = "ended"     // its client is closed, in order or not
	Joining   Kind = "joining"   // it has sent its first join as a static member
	Alive     Kind = "alive"     // an answer that only a member gets
	Fenced    Kind = "fenced"    // an answer that says that it is none
	Owns      Kind = "owns"      // it is being told that partitions are its own
	Released  Kind = "released"  // it has given them up
	Commits   Kind = "commits"   // it is sending an OffsetCommit
	Committed Kind = "committed" // what was answered to it
	Seen      Kind = "seen"      // an answer to OffsetFetch
	Moved     Kind = "moved"     // the group's coordinator was killed, see Event.At
	Rested    Kind = "rested"    // the group was whole and still: what had changed has had its rebalances
	Reigns    Kind = "reigns"    // Broker began to load the group: it is the coordinator
)

// Event is one line of a log. Times are nanoseconds of CLOCK_MONOTONIC.
type Event struct {
	At     int64  `json:"at"`
	Kind   Kind   `json:"kind"`
	Group  string `json:"group"`
	Member string `json:"member,omitempty"` // the incarnation

	// Of Started.
	Protocol  Protocol      `json:"protocol,omitempty"`
	Instance  string        `json:"instance,omitempty"`
	Session   time.Duration `json:"session,omitempty"`
	Rebalance time.Duration `json:"rebalance,omitempty"`

	Broker      string          `json:"broker,omitempty"` // who answered; who reigns
	Sent        int64           `json:"sent,omitempty"`   // when the request that At's answer is for was sent
	Key         int16           `json:"key,omitempty"`    // of that request
	Code        int16           `json:"code,omitempty"`   // of the answer
	Generation  int32           `json:"gen,omitempty"`    // of Alive; the member epoch in KIP-848
	Rebalancing bool            `json:"reb,omitempty"`    // of Alive: it said REBALANCE_IN_PROGRESS
	Told        bool            `json:"told,omitempty"`   // of Alive: it brought Partitions, all of the assignment (KIP-848)
	Partitions  []int32         `json:"parts,omitempty"`  // of Owns, Released, Alive
	Offsets     map[int32]int64 `json:"offs,omitempty"`   // of Commits, Committed, Seen; -1 is none
	Why         string          `json:"why,omitempty"`    // of Ended, for people
}

// now is what all processes' logs are written by.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // it is there on every Linux
	}
	return t.Nano()
}

// Log is a worker's file of events. A line is written when Note returns, so that a
// kill takes nothing that the application may have acted upon.
type Log struct {
	mu  sync.Mutex
	out io.Writer
}

// Note writes an event, at the time it has or now.
func (l *Log) Note(e Event) {
	if e.At == 0 {
		e.At = now()
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // an Event can always be told
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.out.Write(append(b, '\n')); err != nil {
		fmt.Fprintln(os.Stderr, "log:", err)
		os.Exit(1) // a member must not go on without its log
	}
}

// tail reads what has been added to a log since it was last asked. A last line
// without its end, of a process that was killed while writing, is left where it is.
type tail struct {
	path string
	at   int64
}

func (t *tail) next(take func(Event)) error {
	f, err := os.Open(t.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // not begun
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(t.at, io.SeekStart); err != nil {
		return err
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	for {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		if !whole {
			return nil
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s at %d: %w", t.path, t.at, err)
		}
		take(e)
		t.at += int64(len(line) + 1)
		b = rest
	}
}
