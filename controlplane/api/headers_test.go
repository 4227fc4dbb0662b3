package api

import (
	"testing"
	"time"
)

func TestPreferAndWaitGiveABoundedTime(t *testing.T) {
	f := func(wait, prefer string, want time.Duration) {
		t.Helper()
		if got := (Waiting{Wait: wait, Prefer: prefer}).duration(); got != want {
			t.Errorf("wait=%q Prefer=%q: %v, want %v", wait, prefer, got, want)
		}
	}
	f("", "", 0)
	f("applied", "", defaultWait)
	f("", "wait=5", 5*time.Second)
	f("applied", "respond-async, wait=5", 5*time.Second)
	f("", "wait=100000", maxWait)
	f("", "wait=-1", 0)
	f("", "wait=x", 0)
	f("", "wait=99999999999999999999", 0)
}

func FuzzHeaders(f *testing.F) {
	f.Add("wait=5", `"3"`)
	f.Add("respond-async, wait=5", `W/"3"`)
	f.Add(",,wait=,", "*")
	f.Fuzz(func(t *testing.T, prefer, ifMatch string) {
		if d := (Waiting{Prefer: prefer}).duration(); d < 0 || d > maxWait {
			t.Errorf("Prefer %q: %v", prefer, d)
		}
		if n, err := generation(ifMatch); err == nil && n < 0 || err != nil && n != 0 {
			t.Errorf("If-Match %q: %d, %v", ifMatch, n, err)
		}
		if plain(prefer) && len(prefer) > 64 {
			t.Errorf("request id %q", prefer)
		}
	})
}
