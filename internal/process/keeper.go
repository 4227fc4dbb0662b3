package process

import (
	"context"
	"syscall"
	"time"
)

// EventKind tells what happened to a kept child.
type EventKind int

const (
	Started EventKind = iota // a child runs
	Failed                   // a child could not be started
	Died                     // a child ended though it should run
	Stopped                  // a child ended as it was told
	Killed                   // a child did not end within the grace and is being killed
)

func (k EventKind) String() string {
	return [...]string{"started", "failed", "died", "stopped", "killed"}[k]
}

// Event is one change in the life of a kept child.
type Event struct {
	Kind EventKind
	ID   ID
	// Err is why it ended or did not start; Text says the same in words.
	Err  error
	Text string
	// Delay is the pause before the next start, for Died and Failed; negative if
	// there will be none.
	Delay time.Duration
}

// Keeper runs one child and starts it again when it dies by itself. All times
// have defaults; the zero Keeper with a Start is ready to Run.
type Keeper struct {
	Start func() (*Child, error)
	// NoRestart leaves a dead child dead until Run is told to start it.
	NoRestart bool
	// First is the pause after a death, default 1 s. It doubles with each death
	// up to Max, default 30 s, and falls back to First once a child has lived
	// for Steady, default 60 s.
	First, Max, Steady time.Duration
	// Grace is how long a child may take to end after Stop, default 45 s: a
	// broker hands its leaderships over before it goes.
	Grace time.Duration
	// Stop is the signal that asks the child to end, default SIGTERM.
	Stop syscall.Signal
	// OnEvent is called on Run's goroutine.
	OnEvent func(Event)
}

// Order is what Run can be told.
type Order struct {
	// Run starts the child at once, or asks it to end.
	Run bool
	// Done, if set, is closed when the order has been carried out.
	Done chan<- struct{}
}

// Run keeps the child until the context ends; then it stops the child, waits
// for it and returns. The child is started at once if run is true; orders
// change that later. Cancel's cause may be a GraceError to shorten the grace.
func (k *Keeper) Run(ctx context.Context, run bool, orders <-chan Order) {
	s := keeping{Keeper: k.withDefaults(), want: run}
	s.pause = s.First
	if run {
		s.start()
	}
	done := ctx.Done()
	for {
		var ended <-chan struct{}
		if s.child != nil {
			ended = s.child.Done()
		}
		select {
		case <-done:
			done = nil
			s.leaving = true
			if g, ok := context.Cause(ctx).(GraceError); ok {
				s.Grace = time.Duration(g)
			}
			s.order(Order{})
		case o := <-orders:
			if !s.leaving {
				s.order(o)
			} else if o.Done != nil {
				close(o.Done)
			}
		case <-ended:
			s.ended()
		case <-s.again.C():
			s.again.stop()
			s.start()
		case <-s.kill.C():
			s.kill.stop()
			s.emit(Event{Kind: Killed, ID: s.child.ID})
			_ = s.child.ID.Signal(syscall.SIGKILL)
		}
		if s.leaving && s.child == nil {
			s.again.stop()
			return
		}
	}
}

// GraceError as the cause of a cancellation sets the grace of the last stop.
type GraceError time.Duration

func (g GraceError) Error() string { return "stop within " + time.Duration(g).String() }

func (k Keeper) withDefaults() Keeper {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&k.First, time.Second)
	def(&k.Max, 30*time.Second)
	def(&k.Steady, 60*time.Second)
	def(&k.Grace, 45*time.Second)
	if k.Stop == 0 {
		k.Stop = syscall.SIGTERM
	}
	return k
}

// keeping is the state of one Run.
type keeping struct {
	Keeper
	want, leaving bool
	child         *Child
	since         time.Time
	pause         time.Duration // before the next restart
	again, kill   timer
	waiting       []chan<- struct{} // orders to end, not yet carried out
}

func (s *keeping) emit(e Event) {
	if s.OnEvent != nil {
		s.OnEvent(e)
	}
}

func (s *keeping) order(o Order) {
	s.want = o.Run
	if o.Run {
		s.pause = s.First
		// A child that is on its way out is started anew when it has gone.
		if s.child == nil {
			s.again.stop()
			s.start()
		}
	} else {
		s.again.stop()
		if s.child != nil {
			_ = s.child.ID.Signal(s.Stop)
			s.kill.start(s.Grace)
			if o.Done != nil {
				s.waiting = append(s.waiting, o.Done)
			}
			return
		}
	}
	if o.Done != nil {
		close(o.Done)
	}
}

func (s *keeping) start() {
	c, err := s.Start()
	if err != nil {
		s.retry(Event{Kind: Failed, Err: err, Text: err.Error()})
		return
	}
	s.child, s.since = c, time.Now()
	s.emit(Event{Kind: Started, ID: c.ID})
}

func (s *keeping) ended() {
	c := s.child
	s.child = nil
	stopping := s.kill.running()
	s.kill.stop()
	e := Event{Kind: Died, ID: c.ID, Err: c.Err(), Text: c.Describe()}
	switch {
	case stopping && s.want: // told to stop, then to start, before it had gone
		e.Kind = Stopped
		s.emit(e)
		s.start()
	case stopping || !s.want:
		e.Kind = Stopped
		s.emit(e)
	default:
		if time.Since(s.since) >= s.Steady {
			s.pause = s.First
		}
		s.retry(e)
	}
	for _, w := range s.waiting {
		close(w)
	}
	s.waiting = nil
}

func (s *keeping) retry(e Event) {
	if s.NoRestart {
		e.Delay = -1
		s.want = false
		s.emit(e)
		return
	}
	e.Delay = s.pause
	s.again.start(s.pause)
	s.pause = min(2*s.pause, s.Max)
	s.emit(e)
}

// timer is a time.Timer that may be off.
type timer struct{ t *time.Timer }

func (t *timer) C() <-chan time.Time {
	if t.t == nil {
		return nil
	}
	return t.t.C
}

func (t *timer) running() bool { return t.t != nil }

func (t *timer) start(d time.Duration) {
	t.stop()
	t.t = time.NewTimer(d)
}

func (t *timer) stop() {
	if t.t != nil {
		t.t.Stop()
		t.t = nil
	}
}
