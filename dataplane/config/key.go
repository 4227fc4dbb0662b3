package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// KeyError is a bad value of one key. Its text is what a client is shown as
// the message of INVALID_CONFIG; a sensitive value is never in it.
type KeyError struct {
	Key    string // empty: all together
	Value  string // empty for sensitive keys
	Reason string
}

func (e *KeyError) Error() string {
	if e.Key == "" {
		return e.Reason
	}
	if e.Value == "" {
		return fmt.Sprintf("bad value for %s: %s", e.Key, e.Reason)
	}
	return fmt.Sprintf("bad value %q for %s: %s", e.Value, e.Key, e.Reason)
}

// key describes one setting.
type key struct {
	name    string
	typ     kmsg.ConfigType
	def     string
	null    bool // no default: the value is absent unless set
	check   func(string) error
	dynamic bool // may be changed while the broker runs
	// clusterWide: not for one broker alone, where it would hide what is set for all
	clusterWide bool
	doc         string
	syn         []string // topic keys: the broker's keys that it falls back to, in order
}

func (k *key) sensitive() bool { return k.typ == kmsg.ConfigTypePassword }

// parse checks a value and brings it into its plain form (blanks trimmed).
func (k *key) parse(v string) (string, error) {
	t := strings.TrimSpace(v)
	err := checkType(k.typ, t)
	if err == nil && k.check != nil {
		err = k.check(t)
	}
	if err == nil {
		return t, nil
	}
	shown := clip(v)
	if k.sensitive() {
		shown = ""
	}
	return "", &KeyError{Key: k.name, Value: shown, Reason: err.Error()}
}

// clip keeps a value of a stranger from filling logs and replies.
func clip(v string) string {
	const max = 200
	if len(v) <= max {
		return v
	}
	return strings.ToValidUTF8(v[:max], "") + "..."
}

func checkType(t kmsg.ConfigType, v string) error {
	switch t {
	case kmsg.ConfigTypeBoolean:
		if !strings.EqualFold(v, "true") && !strings.EqualFold(v, "false") {
			return fmt.Errorf("want true or false")
		}
	case kmsg.ConfigTypeShort:
		return wantInt(v, 16, "16-bit integer")
	case kmsg.ConfigTypeInt:
		return wantInt(v, 32, "32-bit integer")
	case kmsg.ConfigTypeLong:
		return wantInt(v, 64, "64-bit integer")
	case kmsg.ConfigTypeDouble:
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("want a number")
		}
	}
	return nil
}

func wantInt(v string, bits int, what string) error {
	if _, err := strconv.ParseInt(v, 10, bits); err != nil {
		return fmt.Errorf("want a %s", what)
	}
	return nil
}

// Checks run after checkType: what they parse is known to parse.

func atLeast(min int64) func(string) error {
	return func(v string) error {
		if mustInt(v) < min {
			return fmt.Errorf("must be at least %d", min)
		}
		return nil
	}
}

func between(min, max int64) func(string) error {
	return func(v string) error {
		if n := mustInt(v); n < min || n > max {
			return fmt.Errorf("must be between %d and %d", min, max)
		}
		return nil
	}
}

// share is above 0 and at most 1.
func share(v string) error {
	if f, err := strconv.ParseFloat(v, 64); err != nil || !(f > 0 && f <= 1) {
		return fmt.Errorf("must be above 0 and at most 1")
	}
	return nil
}

func positive(v string) error {
	if f, err := strconv.ParseFloat(v, 64); err != nil || !(f > 0) {
		return fmt.Errorf("must be above 0")
	}
	return nil
}

func ratio(v string) error {
	if f, _ := strconv.ParseFloat(v, 64); f < 0 || f > 1 {
		return fmt.Errorf("must be between 0 and 1")
	}
	return nil
}

func oneOf(allowed ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("must be one of %s", strings.Join(allowed, ", "))
		}
		return nil
	}
}

func listOf(allowed ...string) func(string) error {
	return func(v string) error {
		for _, e := range splitList(v) {
			if !slices.Contains(allowed, e) {
				return fmt.Errorf("must be a list of %s", strings.Join(allowed, ", "))
			}
		}
		return nil
	}
}

// anyCase is oneOf in capitals or not.
func anyCase(allowed ...string) func(string) error {
	check := oneOf(allowed...)
	return func(v string) error { return check(strings.ToUpper(v)) }
}

// assignorClasses are Kafka's names of the assignors of consumer groups.
var assignorClasses = map[string]string{
	"uniform": "uniform", "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
	"range": "range", "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}

func assignors(v string) error {
	names := splitList(v)
	if len(names) == 0 {
		return fmt.Errorf("must name an assignor")
	}
	for _, n := range names {
		if assignorClasses[n] == "" {
			return fmt.Errorf("must be a list of uniform and range")
		}
	}
	return nil
}

func notEmpty(v string) error {
	if v == "" {
		return fmt.Errorf("must not be empty")
	}
	return nil
}

// or accepts v when any of the checks does.
func or(text string, checks ...func(string) error) func(string) error {
	return func(v string) error {
		for _, c := range checks {
			if c(v) == nil {
				return nil
			}
		}
		return fmt.Errorf("must be %s", text)
	}
}

// splitList reads Kafka's LIST type: comma-separated, blanks around elements
// dropped; the empty string is the empty list.
func splitList(v string) []string {
	if v = strings.TrimSpace(v); v == "" {
		return nil
	}
	parts := strings.Split(v, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

func mustInt(v string) int64 {
	n, _ := strconv.ParseInt(v, 10, 64)
	return n
}

func index(tables ...[]key) map[string]*key {
	m := make(map[string]*key)
	for _, t := range tables {
		for i := range t {
			m[t[i].name] = &t[i]
		}
	}
	return m
}
