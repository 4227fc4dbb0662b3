package admission

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestSmallRequestsDoNotWaitForLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		l := NewLanes(256 * mib)
		ctx, cancel := context.WithCancel(context.Background())
		granted := make(chan struct{}, 10)
		for range 4 {
			go func() {
				if l.Acquire(ctx, 100*mib) == nil {
					granted <- struct{}{}
				}
			}()
		}
		synctest.Wait()
		if len(granted) != 1 || l.Waiting() != 3 {
			t.Fatalf("%d of 100 MiB granted, %d waiting", len(granted), l.Waiting())
		}
		for range 32 { // all of their own lane
			if err := l.Acquire(ctx, 2*mib); err != nil {
				t.Fatal(err)
			}
		}
		go func() { _ = l.Acquire(ctx, 1) }()
		synctest.Wait()
		if l.Waiting() != 4 {
			t.Error("the small lane has no bound")
		}
		l.Release(2 * mib)
		synctest.Wait()
		if l.Waiting() != 3 || l.small.Used() != 62*mib+1 || l.large.Used() != 100*mib {
			t.Errorf("%d waiting, %d and %d used", l.Waiting(), l.small.Used(), l.large.Used())
		}
		l.Release(100 * mib)
		synctest.Wait()
		if len(granted) != 2 {
			t.Error("a large one was not served in its turn")
		}
		cancel()
		synctest.Wait()
	})
}

func TestLanesWithoutABoundNeverWait(t *testing.T) {
	l := NewLanes(0)
	for _, n := range []int64{1, 1 << 20, 1 << 40, 1 << 40} {
		if err := l.Acquire(context.Background(), n); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASmallBudgetStillServesLargeRequests(t *testing.T) {
	l := NewLanes(1 << 20)
	for range 3 {
		if err := l.Acquire(context.Background(), 50<<20); err != nil {
			t.Fatal(err)
		}
		l.Release(50 << 20)
	}
}
