package config

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// reader takes typed values out of the layers and gathers the errors.
type reader struct {
	l    *layers
	errs []error
	bad  map[string]bool
}

func (r *reader) text(name string) string {
	k := brokerIndex[name]
	if k == nil {
		panic("config: BUG: no such key " + name)
	}
	v, ok := r.l.raw(name)
	if !ok {
		return ""
	}
	return r.parse(k, v)
}

func (r *reader) parse(k *key, v string) string {
	t, err := k.parse(v)
	if err != nil {
		if !r.bad[k.name] {
			r.bad[k.name] = true
			r.errs = append(r.errs, err)
		}
		return k.def
	}
	return t
}

func (r *reader) num(name string) int64        { return mustInt(r.text(name)) }
func (r *reader) int(name string) int          { return int(r.num(name)) }
func (r *reader) bool(name string) bool        { return strings.EqualFold(r.text(name), "true") }
func (r *reader) list(name string) []string    { return splitList(r.text(name)) }
func (r *reader) ms(name string) time.Duration { return millis(r.num(name)) }
func (r *reader) unit(name string, u time.Duration) time.Duration {
	return scale(r.num(name), u)
}

func (r *reader) fail(name, format string, args ...any) {
	if !r.bad[name] {
		r.bad[name] = true
		r.errs = append(r.errs, &KeyError{Key: name, Reason: fmt.Sprintf(format, args...)})
	}
}

func millis(n int64) time.Duration { return scale(n, time.Millisecond) }

func scale(n int64, u time.Duration) time.Duration {
	if n > math.MaxInt64/int64(u) {
		return Forever
	}
	if n < math.MinInt64/int64(u) {
		return -Forever
	}
	return time.Duration(n) * u
}

func setOf(lines string) map[string]bool {
	m := make(map[string]bool)
	for _, l := range strings.Fields(lines) {
		m[l] = true
	}
	return m
}
