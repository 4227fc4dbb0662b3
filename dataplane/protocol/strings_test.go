package protocol

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestStringsOfFlexibleVersionsAreNoLongerThanOthers: a group id of 65,540 bytes would be
// stored under a key whose int16 length says 4, and be another group's after the next load.
func TestStringsOfFlexibleVersionsAreNoLongerThanOthers(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, make := range map[string]func(s string) kmsg.Request{
		"group id": func(s string) kmsg.Request {
			r := kmsg.NewPtrOffsetCommitRequest()
			r.Version, r.Group = 8, s
			return r
		},
		"transactional id, which may be null": func(s string) kmsg.Request {
			r := kmsg.NewPtrInitProducerIDRequest()
			r.Version, r.TransactionalID = 4, &s
			return r
		},
		"in an array": func(s string) kmsg.Request {
			r := kmsg.NewPtrDeleteGroupsRequest()
			r.Version, r.Groups = 2, []string{"a", s}
			return r
		},
		"of a produce": func(s string) kmsg.Request {
			r := kmsg.NewPtrProduceRequest()
			r.Version, r.TransactionID = 9, &s
			return r
		},
	} {
		for n, want := range map[int]error{32767: nil, 32768: ErrMalformed, 65540: ErrMalformed} {
			r := make(long(n))
			if _, err := Lookup(r.Key()).Measure(r.GetVersion(), r.AppendTo(nil)); !errors.Is(err, want) {
				t.Errorf("%s of %d bytes: %v, want %v", name, n, err, want)
			}
		}
	}
}
