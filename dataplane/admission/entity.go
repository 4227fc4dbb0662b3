package admission

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// defaultNode is the znode's name of the default entity. A user of that very
// name has it URL-encoded.
const defaultNode = "<default>"

// part is one half of an entity.
type part struct {
	kind uint8 // absent, named, default
	name string
}

const (
	absent uint8 = iota
	named
	byDefault
)

// Entity is what a quota is set for: a user, a client id, or both, each by
// name or as the default. The zero Entity is nothing.
type Entity struct{ user, client part }

// EntityOf builds an entity; a nil name with has true is the default entity.
func EntityOf(hasUser bool, user *string, hasClient bool, client *string) Entity {
	return Entity{user: partOf(hasUser, user), client: partOf(hasClient, client)}
}

func partOf(has bool, name *string) part {
	switch {
	case !has:
		return part{}
	case name == nil:
		return part{kind: byDefault}
	}
	return part{kind: named, name: *name}
}

// ParsePath reads the path of a quota's znode: /config/users/U, /config/clients/C
// or /config/users/U/clients/C, also without /config/ as change notifications
// have it. Names are URL-encoded; <default> is the default entity. ok is false
// for any other path.
func ParsePath(path string) (e Entity, ok bool) {
	path = strings.TrimPrefix(strings.TrimPrefix(path, "/"), "config/")
	f := strings.Split(path, "/")
	if len(f) != 2 && len(f) != 4 {
		return Entity{}, false
	}
	switch f[0] {
	case "users":
		if e.user, ok = parseNode(f[1]); !ok {
			return Entity{}, false
		}
		if len(f) == 2 {
			return e, true
		}
		if f[2] != "clients" {
			return Entity{}, false
		}
		e.client, ok = parseNode(f[3])
	case "clients":
		if len(f) != 2 {
			return Entity{}, false
		}
		e.client, ok = parseNode(f[1])
	}
	if !ok {
		return Entity{}, false
	}
	return e, true
}

func parseNode(s string) (part, bool) {
	if s == defaultNode {
		return part{kind: byDefault}, true
	}
	name, err := url.QueryUnescape(s)
	if err != nil || s == "" {
		return part{}, false
	}
	return part{kind: named, name: name}, true
}

// EntityPath is the path below /config of the entity's znode, as it stands in
// change notifications: users/U, clients/C or users/U/clients/C.
func (e Entity) EntityPath() string {
	var f []string
	if e.user.kind != absent {
		f = append(f, "users", e.user.node())
	}
	if e.client.kind != absent {
		f = append(f, "clients", e.client.node())
	}
	return strings.Join(f, "/")
}

func (p part) node() string {
	if p.kind == byDefault {
		return defaultNode
	}
	return Sanitize(p.name)
}

// Sanitize encodes a name for a znode as Kafka does: like a URL's query, but
// with %20 for a blank and %2A for a star.
func Sanitize(name string) string {
	return strings.NewReplacer("+", "%20", "*", "%2A", "~", "%7E").Replace(url.QueryEscape(name))
}

// The names of quota values in the znodes and the API.
const (
	ProducerByteRate  = "producer_byte_rate"
	ConsumerByteRate  = "consumer_byte_rate"
	RequestPercentage = "request_percentage"
)

var kindOf = map[string]kind{ProducerByteRate: produce, ConsumerByteRate: fetch, RequestPercentage: request}

// FormatValue checks a value of AlterClientQuotas and writes it as it stands in
// the znode. Errors are INVALID_REQUEST.
func FormatValue(name string, v float64) (string, error) {
	k, ok := kindOf[name]
	if !ok {
		return "", fmt.Errorf("%w: no such quota: %q", kerr.InvalidRequest, clip(name))
	}
	if !(v > 0) || math.IsInf(v, 0) {
		return "", fmt.Errorf("%w: %s must be above 0", kerr.InvalidRequest, name)
	}
	if k == request {
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}
	// A byte rate is a whole number; a rounding error of the client's is mended.
	n := math.Floor(v + 1e-6)
	if math.Abs(n-v) > 1e-6 || n < 1 || n >= math.MaxInt64 {
		return "", fmt.Errorf("%w: %s must be a whole number", kerr.InvalidRequest, name)
	}
	return strconv.FormatInt(int64(n), 10), nil
}

// ParseEntity reads the entity of an AlterClientQuotas entry: types user and
// client-id, at most one of each; a nil name is the default.
func ParseEntity(parts []kmsg.AlterClientQuotasRequestEntryEntity) (Entity, error) {
	var e Entity
	if len(parts) == 0 {
		return e, fmt.Errorf("%w: no entity", kerr.InvalidRequest)
	}
	for _, p := range parts {
		var dst *part
		switch p.Type {
		case "user":
			dst = &e.user
		case "client-id":
			dst = &e.client
		default:
			return e, fmt.Errorf("%w: no quotas for entities of type %q", kerr.InvalidRequest, clip(p.Type))
		}
		if dst.kind != absent {
			return e, fmt.Errorf("%w: entity type %s is named twice", kerr.InvalidRequest, p.Type)
		}
		if p.Name != nil && *p.Name == "" {
			return e, fmt.Errorf("%w: empty name of a %s", kerr.InvalidRequest, p.Type)
		}
		*dst = partOf(true, p.Name)
	}
	return e, nil
}

// AlterValues applies one entry's ops to the znode's config map and returns the
// new map; the old one is not touched, and keys that are no quotas stay.
func AlterValues(current map[string]string, ops []kmsg.AlterClientQuotasRequestEntryOp) (map[string]string, error) {
	out := make(map[string]string, len(current)+len(ops))
	for k, v := range current {
		out[k] = v
	}
	for _, op := range ops {
		if op.Remove {
			if _, ok := kindOf[op.Key]; !ok {
				return nil, fmt.Errorf("%w: no such quota: %q", kerr.InvalidRequest, clip(op.Key))
			}
			delete(out, op.Key)
			continue
		}
		v, err := FormatValue(op.Key, op.Value)
		if err != nil {
			return nil, err
		}
		out[op.Key] = v
	}
	return out, nil
}

func clip(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "..."
	}
	return s
}
