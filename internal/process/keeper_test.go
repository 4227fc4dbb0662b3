package process

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"
)

var notify = signal.Notify

// keep runs a keeper and gives its events and its orders.
func keep(t *testing.T, k Keeper, mode string, run bool) (<-chan Event, chan<- Order, context.CancelCauseFunc) {
	t.Helper()
	events := make(chan Event, 100)
	k.OnEvent = func(e Event) { events <- e }
	if k.Start == nil {
		k.Start = func() (*Child, error) {
			return Start(Spec{Path: os.Args[0], Args: []string{"child", mode}, DeathSignal: syscall.SIGKILL})
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	orders := make(chan Order)
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx, run, orders)
	}()
	t.Cleanup(func() {
		cancel(nil)
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Error("the keeper does not end")
		}
	})
	return events, orders, cancel
}

func next(t *testing.T, events <-chan Event) Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("no event")
		return Event{}
	}
}

func want(t *testing.T, events <-chan Event, kind EventKind) Event {
	t.Helper()
	e := next(t, events)
	if e.Kind != kind {
		t.Fatalf("event %v (%s), want %v", e.Kind, e.Text, kind)
	}
	return e
}

func TestCrashLoopBacksOffToItsCap(t *testing.T) {
	events, _, _ := keep(t, Keeper{First: time.Millisecond, Max: 4 * time.Millisecond}, "exit1", true)
	var delays []time.Duration
	for range 5 {
		want(t, events, Started)
		delays = append(delays, want(t, events, Died).Delay)
	}
	ms := time.Millisecond
	if want := []time.Duration{ms, 2 * ms, 4 * ms, 4 * ms, 4 * ms}; !slices.Equal(delays, want) {
		t.Errorf("delays %v, want %v", delays, want)
	}
}

func TestBackoffFallsBackAfterASteadyLife(t *testing.T) {
	// Any life counts as steady.
	events, _, _ := keep(t, Keeper{First: time.Millisecond, Max: time.Hour, Steady: time.Nanosecond}, "exit1", true)
	for range 4 {
		want(t, events, Started)
		if d := want(t, events, Died).Delay; d != time.Millisecond {
			t.Fatalf("delay %v", d)
		}
	}
}

func TestStoppedChildStaysStoppedUntilStarted(t *testing.T) {
	events, orders, _ := keep(t, Keeper{First: time.Millisecond}, "sleep", true)
	first := want(t, events, Started).ID
	done := make(chan struct{})
	orders <- Order{Done: done}
	<-done
	want(t, events, Stopped)
	if first.Alive() {
		t.Fatal("it lives after the order to stop was carried out")
	}
	orders <- Order{Run: true}
	if second := want(t, events, Started).ID; second == first {
		t.Fatal("the same process")
	}
	select {
	case e := <-events:
		t.Fatalf("event %v, want none", e.Kind)
	default:
	}
}

func TestStartOrderCutsTheBackoffShort(t *testing.T) {
	events, orders, _ := keep(t, Keeper{First: time.Hour}, "sleep", true)
	id := want(t, events, Started).ID
	_ = id.Signal(syscall.SIGKILL)
	if e := want(t, events, Died); e.Delay != time.Hour {
		t.Fatalf("delay %v", e.Delay)
	}
	orders <- Order{Run: true}
	want(t, events, Started)
}

func TestNoRestartLeavesTheDeadDead(t *testing.T) {
	events, orders, _ := keep(t, Keeper{First: time.Millisecond, NoRestart: true}, "exit1", true)
	want(t, events, Started)
	if e := want(t, events, Died); e.Delay >= 0 {
		t.Fatalf("delay %v, want none", e.Delay)
	}
	orders <- Order{Run: true} // by hand it works
	want(t, events, Started)
	want(t, events, Died)
}

func TestStubbornChildIsKilledAfterTheGrace(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	k := Keeper{Start: func() (*Child, error) {
		return Start(Spec{Path: os.Args[0], Args: []string{"child", "stubborn"}, Stdout: w, DeathSignal: syscall.SIGKILL})
	}}
	events, _, cancel := keep(t, k, "", true)
	id := want(t, events, Started).ID
	if _, err := r.Read(make([]byte, 16)); err != nil { // it has its handler now
		t.Fatal(err)
	}
	cancel(GraceError(20 * time.Millisecond))
	want(t, events, Killed)
	want(t, events, Stopped)
	if id.Alive() {
		t.Fatal("it lives")
	}
}

func TestBinaryThatCannotBeStartedIsTriedAgain(t *testing.T) {
	calls := 0
	events, _, _ := keep(t, Keeper{First: time.Millisecond, Start: func() (*Child, error) {
		calls++
		if calls < 3 {
			return nil, os.ErrNotExist
		}
		return Start(Spec{Path: os.Args[0], Args: []string{"child", "sleep"}, DeathSignal: syscall.SIGKILL})
	}}, "", true)
	want(t, events, Failed)
	want(t, events, Failed)
	want(t, events, Started)
}
