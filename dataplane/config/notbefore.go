package config

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"penstock/tenants"
)

// ParseNotBefore reads penstock.auth.not.before: entries User:NAME=MS or
// Credential:ID=MS, MS in Unix milliseconds. A name is written as in the znodes below
// /config/users, with % and two digits for what is special in a URL; so a comma or an
// equals sign in it divides nothing. The keys of the result have the plain name.
// Of a name that comes twice the later time counts.
func ParseNotBefore(list string) (map[string]time.Time, error) {
	var out map[string]time.Time
	for _, e := range splitList(list) {
		i := strings.LastIndexByte(e, '=')
		if i < 0 {
			return nil, fmt.Errorf("%q is not NAME=MS", clip(e))
		}
		name, err := url.PathUnescape(e[:i])
		kind, _, bad := tenants.SplitPrincipal(name)
		if err != nil || bad != nil || kind != tenants.UserType && kind != tenants.CredentialType {
			return nil, fmt.Errorf("%q is neither User:NAME nor Credential:ID", clip(e[:i]))
		}
		ms, err := strconv.ParseInt(e[i+1:], 10, 64)
		if err != nil || ms < 0 {
			return nil, fmt.Errorf("%q is not a time in ms", clip(e[i+1:]))
		}
		if out == nil {
			out = map[string]time.Time{}
		}
		if t := time.UnixMilli(ms); t.After(out[name]) {
			out[name] = t
		}
	}
	return out, nil
}

func notBefore(v string) error { _, err := ParseNotBefore(v); return err }
