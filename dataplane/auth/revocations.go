package auth

import (
	"fmt"
	"sync/atomic"
	"time"

	"penstock/tenants"
)

// Revocations are the tokens that no longer count, of penstock.auth.not.before. The
// zero value has none. Safe for concurrent use.
//
// A login writes its token down before it looks here, and Set comes before the
// connections are gone through (Session.Revoked): one of the two sees the other.
type Revocations struct {
	list atomic.Pointer[map[string]time.Time]
}

// Set replaces the list (config.ParseNotBefore has the keys' form). Entries that are
// older than longest, which is the longest life of a token, are left out: no token
// that they mean can still be good.
func (r *Revocations) Set(list map[string]time.Time, longest time.Duration, now time.Time) {
	kept := make(map[string]time.Time, len(list))
	for name, t := range list {
		if t.Add(longest).After(now) {
			kept[name] = t
		}
	}
	r.list.Store(&kept)
}

// refuse says what is against a token, if anything.
func (r *Revocations) refuse(t *Token) error {
	if r == nil {
		return nil
	}
	list := r.list.Load()
	if list == nil || len(*list) == 0 {
		return nil
	}
	names := []string{tenants.Principal(t.Subject)}
	if t.Credential != "" {
		names = append(names, tenants.Credential(t.Credential))
	}
	for _, name := range names {
		if at, ok := (*list)[name]; ok && t.Issued.Before(at) {
			return fmt.Errorf("token of %s was issued %s, and those before %s are revoked (penstock.auth.not.before)",
				clip(name), t.Issued.UTC().Format(time.RFC3339), at.UTC().Format(time.RFC3339Nano))
		}
	}
	return nil
}
