package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFarewellHoldsAnswersWhileLeadersMove(t *testing.T) {
	var f farewell
	told := 0
	tell := func() { told++ }
	f.sendAway(tell)
	if told != 1 {
		t.Fatal("an answer is held back though no leader moves")
	}
	f.hold()
	f.sendAway(tell)
	f.sendAway(tell)
	if told != 1 {
		t.Fatal("an answer went out while leaders move")
	}
	f.release()
	f.release() // the answer of the controller and the time limit may both come
	if told != 3 {
		t.Fatalf("%d of 2 answers after the release", told-1)
	}
	f.sendAway(tell)
	if told != 4 {
		t.Fatal("an answer is held back after the release")
	}
}

func TestFarewellLastsAsLongAsClientsCome(t *testing.T) {
	for name, tc := range map[string]struct {
		every, until, want time.Duration // clients come so often, until then
	}{
		"nobody":         {time.Hour, 0, farewellQuiet},
		"some":           {farewellQuiet / 2, 3 * farewellQuiet, 4 * farewellQuiet},
		"too late":       {farewellQuiet + time.Millisecond, 5 * farewellQuiet, farewellQuiet},
		"one that stays": {farewellQuiet / 2, time.Hour, farewellMax},
		"one in between": {farewellQuiet * 6 / 10, farewellQuiet * 6 / 10, farewellQuiet * 16 / 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			var f farewell
			f.sendAway(func() {}) // long ago
			time.Sleep(time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			go func() {
				for ctx.Err() == nil && time.Since(began) < tc.until {
					time.Sleep(tc.every)
					f.sendAway(func() {})
				}
			}()
			f.wait(ctx)
			cancel()
			if took := time.Since(began); took != tc.want {
				t.Errorf("%s: %v, want %v", name, took, tc.want)
			}
			time.Sleep(2 * time.Hour) // the client goes
		})
	}
}
