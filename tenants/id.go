package tenants

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// The kinds of ids, as the prefix in front of the underscore.
const (
	PrefixTenant         = "ten"
	PrefixCluster        = "clu"
	PrefixServiceAccount = "sa"
	PrefixAutomation     = "aut"
	PrefixMember         = "mem"
	PrefixPlan           = "plan"
	PrefixOperation      = "op"
	PrefixSecret         = "sec"
	PrefixTopic          = "top"
	PrefixQuota          = "quo"
	PrefixACL            = "acl"
	PrefixAudit          = "aud"
	PrefixEvent          = "evt"
	PrefixKey            = "key"
	PrefixHost           = "host"
	PrefixBroker         = "brk"
)

// idLen is the number of characters after the underscore: 128 bits in base 32.
const idLen = 26

// maxPrefix bounds the kind's name, so that an id always fits in 64 bytes.
const maxPrefix = 16

const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

// ErrBadID is in the chain of every error about a malformed id.
var ErrBadID = errors.New("malformed id")

var idState struct {
	sync.Mutex
	ms   uint64
	rest [10]byte
}

// NewID makes an id: prefix, an underscore and 26 characters of lower-case
// Crockford base 32 that carry 48 bits of time (milliseconds since 1970) and
// 80 random bits. Ids of one process sort in the order in which they were
// made, also within one millisecond. The prefix may be given with or without
// its underscore; it must be 1 to 16 lower-case letters, anything else is a
// fault of the program and panics.
func NewID(prefix string) string {
	prefix = strings.TrimSuffix(prefix, "_")
	if !validPrefix(prefix) {
		panic(fmt.Sprintf("tenants: bad id prefix %q", prefix))
	}
	return prefix + "_" + newULID(uint64(time.Now().UnixMilli()))
}

func newULID(ms uint64) string {
	var raw [16]byte
	idState.Lock()
	// A clock that steps back must not unsort the ids: the last time stands.
	if ms > idState.ms || idState.ms == 0 {
		idState.ms = ms
		rand.Read(idState.rest[:]) // never fails: crypto/rand ends the program instead
		idState.rest[0] &= 0x7f    // room to count up without overflow
	} else {
		for i := len(idState.rest) - 1; i >= 0; i-- {
			idState.rest[i]++
			if idState.rest[i] != 0 {
				break
			}
		}
	}
	binary.BigEndian.PutUint64(raw[:8], idState.ms<<16)
	copy(raw[6:], idState.rest[:])
	idState.Unlock()
	return encode32(raw)
}

// encode32 writes 128 bits as 26 characters, the first carrying 3 bits.
func encode32(raw [16]byte) string {
	var out [idLen]byte
	hi, lo := binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	for i := idLen - 1; i >= 0; i-- {
		out[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:])
}

// ValidID says whether id is a well-formed id of the given kind. The prefix
// may be given with or without its underscore.
func ValidID(prefix, id string) bool {
	return CheckID(prefix, id) == nil
}

// CheckID is ValidID with a reason; the error is fit to be shown to a tenant.
func CheckID(prefix, id string) error {
	prefix = strings.TrimSuffix(prefix, "_")
	p, rest, ok := strings.Cut(id, "_")
	if !ok || p != prefix {
		return fmt.Errorf("%w: want %s_ and %d characters", ErrBadID, prefix, idLen)
	}
	if len(rest) != idLen {
		return fmt.Errorf("%w: want %d characters after %s_, have %d", ErrBadID, idLen, prefix, len(rest))
	}
	// 26 characters hold 130 bits: the first may use only three of its five.
	if rest[0] > '7' {
		return fmt.Errorf("%w: out of range", ErrBadID)
	}
	for i := 0; i < len(rest); i++ {
		if strings.IndexByte(crockford, rest[i]) < 0 {
			return fmt.Errorf("%w: %q is not a base-32 character", ErrBadID, rest[i])
		}
	}
	return nil
}

// IDTime is the moment at which the id was made, to the millisecond.
func IDTime(id string) (time.Time, error) {
	prefix, rest, _ := strings.Cut(id, "_")
	if err := CheckID(prefix, id); err != nil {
		return time.Time{}, err
	}
	var ms uint64
	for i := 0; i < 10; i++ { // the first 10 characters are the 50 top bits: 2 of them always zero
		ms = ms<<5 | uint64(strings.IndexByte(crockford, rest[i]))
	}
	return time.UnixMilli(int64(ms)), nil
}

func validPrefix(p string) bool {
	if p == "" || len(p) > maxPrefix {
		return false
	}
	for i := 0; i < len(p); i++ {
		if p[i] < 'a' || p[i] > 'z' {
			return false
		}
	}
	return true
}
