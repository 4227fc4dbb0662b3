package purgatory

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// op is done when ready says so.
type op struct {
	ready     func() bool
	completed atomic.Int32
	expired   atomic.Bool
	busy      atomic.Bool
}

func (o *op) TryComplete() bool {
	if !o.busy.CompareAndSwap(false, true) {
		panic("TryComplete runs twice at once")
	}
	defer o.busy.Store(false)
	return o.ready()
}

func (o *op) Complete(expired bool) {
	o.expired.Store(expired)
	o.completed.Add(1)
}

func TestCheckWakesTheOperationThatItSatisfies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWheel()
		defer w.Close()
		p := New[string](w)
		var hw atomic.Int64
		mk := func(want int64) *op { return &op{ready: func() bool { return hw.Load() >= want }} }
		a, b, c := mk(5), mk(10), mk(0)
		if p.Watch(a, time.Second, "x") || p.Watch(b, time.Second, "x", "y") {
			t.Fatal("completed before its time")
		}
		if !p.Watch(c, time.Second, "x") || c.completed.Load() != 1 {
			t.Fatal("a satisfied operation must be completed at once")
		}
		hw.Store(5)
		if n := p.Check("y"); n != 0 {
			t.Errorf("check of y completed %d", n)
		}
		if n := p.Check("x"); n != 1 || a.completed.Load() != 1 || a.expired.Load() {
			t.Errorf("check of x completed %d, a %d times", n, a.completed.Load())
		}
		hw.Store(10)
		if n := p.Check("y"); n != 1 || b.completed.Load() != 1 {
			t.Errorf("check of y completed %d", n)
		}
		if n := p.Check("x"); n != 0 || p.Len() != 0 {
			t.Errorf("%d completed again, %d left", n, p.Len())
		}
		for i := range p.shards {
			if len(p.shards[i].lists) != 0 {
				t.Error("watch lists are left behind")
			}
		}
		time.Sleep(2 * time.Second)
		if a.completed.Load() != 1 || b.completed.Load() != 1 {
			t.Error("completed twice")
		}
	})
}

func TestOperationExpiresAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWheel()
		defer w.Close()
		p := New[int](w)
		o := &op{ready: func() bool { return false }}
		p.Watch(o, 100*time.Millisecond, 1)
		time.Sleep(99 * time.Millisecond)
		if o.completed.Load() != 0 {
			t.Error("expired early")
		}
		time.Sleep(3 * time.Millisecond)
		if o.completed.Load() != 1 || !o.expired.Load() || p.Len() != 0 {
			t.Errorf("completed %d times, expired %v, %d left", o.completed.Load(), o.expired.Load(), p.Len())
		}
		zero := &op{ready: func() bool { return false }}
		if !p.Watch(zero, 0, 1) || !zero.expired.Load() {
			t.Error("a timeout of zero must end the operation at once")
		}
	})
}

// The change between the first look and the watch must not be lost.
func TestChangeDuringWatchIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWheel()
		defer w.Close()
		p := New[int](w)
		n := 0
		o := &op{ready: func() bool { n++; return n > 1 }}
		if !p.Watch(o, time.Hour, 1) || o.completed.Load() != 1 || o.expired.Load() {
			t.Error("not tried again after it was put in place")
		}
	})
}

func TestCloseEndsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWheel()
		defer w.Close()
		p := New[int](w)
		var ops []*op
		for i := range 100 {
			o := &op{ready: func() bool { return false }}
			ops = append(ops, o)
			p.Watch(o, time.Hour, i, i+1)
		}
		p.Close()
		late := &op{ready: func() bool { return false }}
		p.Watch(late, time.Hour, 1)
		for i, o := range append(ops, late) {
			if o.completed.Load() != 1 || !o.expired.Load() {
				t.Errorf("operation %d completed %d times", i, o.completed.Load())
			}
		}
	})
}

func TestEveryOperationCompletesExactlyOnceUnderContention(t *testing.T) {
	w := NewWheel()
	defer w.Close()
	p := New[int](w)
	var world [8]atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	var ops []*op
	stop := make(chan struct{})
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				k := (g + i) % 8
				want := world[k].Load() + int64(i%3)
				o := &op{ready: func() bool { return world[k].Load() >= want }}
				mu.Lock()
				ops = append(ops, o)
				mu.Unlock()
				p.Watch(o, time.Duration(i%5)*time.Millisecond, k, (k+1)%8)
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for k := 0; ; k = (k + 1) % 8 {
				select {
				case <-stop:
					return
				default:
				}
				world[k].Add(1)
				p.Check(k)
			}
		})
	}
	time.AfterFunc(100*time.Millisecond, func() { close(stop) })
	wg.Wait()
	p.Close()
	for _, o := range ops {
		if o.completed.Load() != 1 {
			t.Fatalf("completed %d times", o.completed.Load())
		}
	}
	if p.Len() != 0 {
		t.Errorf("%d left", p.Len())
	}
}

func BenchmarkWatchThenCheck(b *testing.B) {
	w := NewWheel()
	defer w.Close()
	p := New[int](w)
	b.ReportAllocs()
	for b.Loop() {
		done := false
		p.Watch(&op{ready: func() bool { return done }}, 30*time.Second, 1)
		done = true
		p.Check(1)
	}
}
