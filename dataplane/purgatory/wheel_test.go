package purgatory

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestTimerFiresOnceNeverEarlyAndWithinATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWheel()
		defer w.Close()
		for _, d := range []time.Duration{
			0, 1, time.Millisecond - 1, time.Millisecond, 19 * time.Millisecond, 20 * time.Millisecond, 21 * time.Millisecond,
			399 * time.Millisecond, 400 * time.Millisecond, 401 * time.Millisecond, 8 * time.Second, 30 * time.Second, 161 * time.Second, 9 * time.Hour,
		} {
			start, fired := time.Now(), make(chan time.Time, 2)
			w.AfterFunc(d, func() { fired <- time.Now() })
			got := (<-fired).Sub(start)
			if got < d || got >= d+2*time.Millisecond {
				t.Errorf("timer of %v fired after %v", d, got)
			}
			synctest.Wait()
			if len(fired) != 0 {
				t.Errorf("timer of %v fired twice", d)
			}
		}
	})
}

func TestStoppedTimerDoesNotFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWheel()
		defer w.Close()
		fired := false
		tm := w.AfterFunc(50*time.Millisecond, func() { fired = true })
		time.Sleep(30 * time.Millisecond)
		if !tm.Stop() {
			t.Error("Stop of a pending timer says false")
		}
		if tm.Stop() {
			t.Error("second Stop says true")
		}
		time.Sleep(time.Second)
		if fired {
			t.Error("stopped timer fired")
		}
		done := w.AfterFunc(time.Millisecond, func() {})
		time.Sleep(10 * time.Millisecond)
		if done.Stop() {
			t.Error("Stop after the call says true")
		}
	})
}

func TestClosedWheelFiresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWheel()
		w.AfterFunc(time.Second, func() { t.Error("fired after Close") })
		w.Close()
		w.Close()
		w.AfterFunc(time.Millisecond, func() { t.Error("fired on a closed wheel") })
		time.Sleep(time.Minute)
	})
}

// The wheel sleeps: it looks up only when a bucket begins. With one timer far
// out that is once per level on the way down.
func TestWheelWakesOncePerLevelAndNotPerTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWheel()
		defer w.Close()
		fired := make(chan struct{})
		w.AfterFunc(time.Hour+time.Millisecond, func() { close(fired) })
		wakes := 0
		for {
			w.mu.Lock()
			next := w.nextExpiry()
			w.mu.Unlock()
			if next < 0 {
				break
			}
			wakes++
			time.Sleep(time.Until(w.start.Add(time.Duration(next)*tick)) + 1)
			synctest.Wait()
		}
		<-fired
		if wakes > 7 {
			t.Errorf("%d wake-ups for one timer", wakes)
		}
	})
}

func TestTimersFireInOrderWhateverTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(rt *rapid.T) {
			w := NewWheel()
			defer w.Close()
			var mu sync.Mutex
			open := map[int]time.Time{}
			timers := map[int]*Timer{}
			n := rapid.IntRange(1, 60).Draw(rt, "timers")
			for i := range n {
				time.Sleep(time.Duration(rapid.IntRange(0, 3_000_000).Draw(rt, "gap")) * time.Microsecond / 100)
				d := time.Duration(rapid.OneOf(rapid.IntRange(0, 50_000), rapid.IntRange(0, 20_000_000)).Draw(rt, "us")) * time.Microsecond
				at := time.Now().Add(d)
				mu.Lock()
				open[i] = at
				timers[i] = w.AfterFunc(d, func() {
					mu.Lock()
					defer mu.Unlock()
					if _, ok := open[i]; !ok {
						t.Errorf("timer %d fired twice or after Stop", i)
					}
					delete(open, i)
					if late := time.Since(at); late < 0 || late >= 2*time.Millisecond {
						t.Errorf("timer %d fired %v off its time", i, late)
					}
				})
				mu.Unlock()
				if rapid.IntRange(0, 3).Draw(rt, "stop") == 0 {
					k := rapid.IntRange(0, i).Draw(rt, "which")
					stopped := timers[k].Stop()
					mu.Lock()
					if _, ok := open[k]; ok != stopped && ok {
						t.Errorf("Stop of pending timer %d says false", k)
					}
					if stopped {
						delete(open, k)
					}
					mu.Unlock()
				}
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(open) != 0 {
				rt.Errorf("%d timers never fired", len(open))
			}
		})
	})
}

func BenchmarkStartStop(b *testing.B) {
	w := NewWheel()
	defer w.Close()
	var t Timer
	f := func() {}
	b.ReportAllocs()
	for b.Loop() {
		w.Start(&t, 30*time.Second, f)
		t.Stop()
	}
}
