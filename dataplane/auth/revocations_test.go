package auth

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestRevokedTokenIsRefusedAndItsSessionTold(t *testing.T) {
	var r Revocations
	l := newLogin(t, func(c *ServerConfig) { c.Revoked = &r })
	now := time.Now().Truncate(time.Second)
	issued := func(at time.Time, kv ...any) string {
		return l.token(t, append([]any{"iat", at.Unix(), "nbf", at.Unix()}, kv...)...)
	}
	old, fresh := issued(now.Add(-time.Minute)), issued(now)
	login := func(token string) *Session {
		t.Helper()
		s := l.NewSession()
		mustHandshake(t, s, OAuthBearer)
		if res, err := s.Authenticate(context.Background(), bearer(token)); err != nil || !res.Done {
			t.Fatalf("%+v, %v", res, err)
		}
		return s
	}
	byOld, byFresh, other := login(old), login(fresh), login(issued(now.Add(-time.Minute), "sub", "sa_two"))
	bySecret := login(issued(now.Add(-time.Minute), "sub", "sa_two", "credential", "sec_1"))
	byNumber := login(issued(now.Add(-time.Minute), "sub", "sa_two", "credential", 1))
	plain := l.NewSession()
	mustHandshake(t, plain, Plain)
	if res, err := plain.Authenticate(context.Background(), []byte("\x00control\x00c-secret")); err != nil || !res.Done {
		t.Fatal(err)
	}
	all := map[string]*Session{"old": byOld, "fresh": byFresh, "another principal's": other, "of a secret": bySecret, "of a number": byNumber, "PLAIN": plain, "not logged in": l.NewSession()}
	revoked := func(want ...string) {
		t.Helper()
		for name, s := range all {
			is := false
			for _, w := range want {
				is = is || w == name
			}
			if s.Revoked() != is {
				t.Errorf("session %s: revoked %v", name, s.Revoked())
			}
		}
	}
	revoked()
	r.Set(map[string]time.Time{"User:sa_one": now, "User:control": now, "User:sa_": now}, time.Hour, now)
	revoked("old")
	refusesToken(t, l.Server, old)
	login(fresh) // issued at the time itself is not before it

	// A login that a new token has prolonged stands on that one, and the old one does not prolong.
	r.Set(nil, time.Hour, now)
	s := login(old)
	mustHandshake(t, s, OAuthBearer)
	if res, err := s.Authenticate(context.Background(), bearer(fresh)); err != nil || !res.Done {
		t.Fatal(err)
	}
	r.Set(map[string]time.Time{"User:sa_one": now}, time.Hour, now)
	if s.Revoked() {
		t.Error("a login that was renewed in time is revoked")
	}
	mustHandshake(t, s, OAuthBearer)
	if res, err := s.Authenticate(context.Background(), bearer(old)); err != nil || res.Done {
		t.Errorf("renewed with a revoked token: %+v, %v", res, err)
	}

	// One of an account's secrets.
	r.Set(map[string]time.Time{"Credential:sec_1": now, "Credential:": now.Add(time.Hour)}, time.Hour, now)
	revoked("of a secret")
	refusesToken(t, l.Server, issued(now.Add(-time.Second), "credential", "sec_1"))

	// Older than any token can be.
	r.Set(map[string]time.Time{"User:sa_one": now.Add(-time.Hour)}, time.Hour, now)
	if len(*r.list.Load()) != 0 {
		t.Errorf("an entry that nothing can come under is kept: %v", *r.list.Load())
	}
	r.Set(map[string]time.Time{"User:sa_one": now.Add(-time.Hour).Add(time.Second)}, time.Hour, now)
	if len(*r.list.Load()) != 1 {
		t.Error("an entry was dropped while tokens of its time are good")
	}
}

func TestRevocationIsLoggedWithoutTheToken(t *testing.T) {
	var r Revocations
	l := newLogin(t, func(c *ServerConfig) { c.Revoked = &r })
	r.Set(map[string]time.Time{"User:sa_one": time.Now().Add(time.Hour)}, time.Hour, time.Now())
	tok := Token{Subject: "sa_one", Issued: time.Now()}
	if err := r.refuse(&tok); err == nil || !strings.Contains(err.Error(), "penstock.auth.not.before") {
		t.Error(err)
	}
	refusesToken(t, l.Server, l.token(t))
}

// Whoever logs in while the list comes is refused, or found by the one who goes through the sessions.
func TestNoLoginSlipsPastARevocation(t *testing.T) {
	const rounds = 30_000
	list := map[string]time.Time{"User:sa_one": time.Now()}
	token := &Token{Subject: "sa_one", Issued: time.Now().Add(-time.Minute)}
	sessions, revoked := make([]*Session, rounds), make([]*Revocations, rounds)
	for i := range sessions {
		revoked[i] = new(Revocations)
		sessions[i] = (&Server{cfg: ServerConfig{Revoked: revoked[i]}}).NewSession()
	}
	var in, cut [rounds]bool
	// Both spin at the start of each round, so that they really run into each other.
	var here [2]atomic.Int64
	together := func(me, round int) {
		here[me].Store(int64(round + 1))
		for here[1-me].Load() <= int64(round) {
			runtime.Gosched()
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i, s := range sessions {
			together(0, i)
			in[i] = s.take(token) == nil
		}
	})
	wg.Go(func() {
		for i, s := range sessions {
			together(1, i)
			revoked[i].Set(list, time.Hour, time.Now())
			cut[i] = s.Revoked()
		}
	})
	wg.Wait()
	for i := range sessions {
		if in[i] && !cut[i] {
			t.Fatalf("round %d: a session is logged in with a revoked token, and was not found", i)
		}
	}
}
