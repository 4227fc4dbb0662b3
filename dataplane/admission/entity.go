package admission

import (
	"net/url"
	"strings"
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

// The names of quota values in the znodes and the API.
const (
	ProducerByteRate  = "producer_byte_rate"
	ConsumerByteRate  = "consumer_byte_rate"
	RequestPercentage = "request_percentage"
)

var kindOf = map[string]kind{ProducerByteRate: produce, ConsumerByteRate: fetch, RequestPercentage: request}

func clip(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "..."
	}
	return s
}
