package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

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
			f.sentAway() // long ago
			time.Sleep(time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			go func() {
				for ctx.Err() == nil && time.Since(began) < tc.until {
					time.Sleep(tc.every)
					f.sentAway()
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
