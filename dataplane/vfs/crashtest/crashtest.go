// Package crashtest runs a test once for each of many seeds, on all processors, and
// names the seeds that failed so that they can be played again:
//
//	go test ./dataplane/commitlog -run PowerCut -crash.runs 10000
//	go test ./dataplane/commitlog -run PowerCut -crash.seed 4711
package crashtest

import (
	"flag"
	"fmt"
	"math/rand"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	runs = flag.Int("crash.runs", 0, "seeded runs of each crash test; 0: a few hundred")
	seed = flag.Int64("crash.seed", -1, "play only this seed")
)

// T ends one run; its methods may be called by the run's own goroutine only.
type T struct {
	Seed int64
	Rand *rand.Rand
}

type failure struct{ text string }

// Helper is there so that T goes where a testing.TB goes.
func (t *T) Helper() {}

// Fatalf ends the run as a failed one.
func (t *T) Fatalf(format string, args ...any) { panic(failure{fmt.Sprintf(format, args...)}) }

// Errorf is Fatalf: what comes after the first fault tells nothing.
func (t *T) Errorf(format string, args ...any) { t.Fatalf(format, args...) }

// Run runs f for the seeds from 0 up, quick of them unless a flag says otherwise, and
// fails the test with the seeds that failed.
func Run(tt *testing.T, quick int, f func(t *T)) {
	tt.Helper()
	if *seed >= 0 {
		if err := one(*seed, f); err != nil {
			tt.Fatal(err)
		}
		return
	}
	n := quick
	if *runs > 0 {
		n = *runs
	} else if testing.Short() {
		n = max(1, quick/8)
	}
	failed := search(int64(n), 10, f)
	for _, err := range failed {
		tt.Errorf("%v\n  again: go test -run '%s' -crash.seed %d", err, tt.Name(), err.seed)
	}
	tt.Logf("%d seeded runs", n)
}

// Finds fails the test unless f fails for one of the first most seeds: with a known
// fault planted, it shows that the runs would find one of its kind.
func Finds(tt *testing.T, most int, f func(t *T)) {
	tt.Helper()
	failed := search(int64(most), 1, f)
	if len(failed) == 0 {
		tt.Fatalf("%d runs did not find the planted fault", most)
	}
	tt.Logf("found: %.200s", failed[0].Error())
}

// Logf tells what the run does when one seed is played.
func (t *T) Logf(format string, args ...any) {
	if *seed >= 0 {
		fmt.Printf(format+"\n", args...)
	}
}

type seedError struct {
	seed int64
	text string
}

func (e *seedError) Error() string { return fmt.Sprintf("seed %d: %s", e.seed, e.text) }

// search runs the seeds until so many have failed, and gives those, ascending.
func search(n int64, enough int, f func(t *T)) []*seedError {
	var (
		next   atomic.Int64
		mu     sync.Mutex
		failed []*seedError
		wg     sync.WaitGroup
	)
	full := func() bool { mu.Lock(); defer mu.Unlock(); return len(failed) >= enough }
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for s := next.Add(1) - 1; s < n && !full(); s = next.Add(1) - 1 {
				if err := one(s, f); err != nil {
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	slices.SortFunc(failed, func(a, b *seedError) int { return int(a.seed - b.seed) })
	return failed
}

func one(seed int64, f func(t *T)) (err *seedError) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = &seedError{seed, r.text}
		default:
			err = &seedError{seed, fmt.Sprintf("panic: %v\n%s", r, debug.Stack())}
		}
	}()
	f(&T{Seed: seed, Rand: rand.New(rand.NewSource(seed))})
	return nil
}
