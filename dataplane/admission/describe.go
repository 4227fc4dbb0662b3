package admission

import (
	"fmt"
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Described is one entity and its quotas.
type Described struct {
	Entity Entity
	Values map[string]float64
}

// Describe answers DescribeClientQuotas: the entities that match every
// component and, when strict, have no other part. Errors are INVALID_REQUEST or
// UNSUPPORTED_VERSION, as Kafka has them.
func (q *Quotas) Describe(components []kmsg.DescribeClientQuotasRequestComponent, strict bool) ([]Described, error) {
	seen := make(map[string]bool)
	none := false
	for _, c := range components {
		switch c.EntityType {
		case "user", "client-id":
		case "ip":
			none = true // quotas by address do not exist here, so none match
		case "":
			return nil, fmt.Errorf("%w: empty entity type", kerr.InvalidRequest)
		default:
			return nil, fmt.Errorf("%w: no quotas for entities of type %q", kerr.UnsupportedVersion, clip(c.EntityType))
		}
		if seen[c.EntityType] {
			return nil, fmt.Errorf("%w: entity type %s is named twice", kerr.InvalidRequest, c.EntityType)
		}
		seen[c.EntityType] = true
		if c.MatchType == kmsg.QuotasMatchTypeExact && c.Match == nil || c.MatchType != kmsg.QuotasMatchTypeExact && c.Match != nil {
			return nil, fmt.Errorf("%w: a match is given for exact matches, and only for those", kerr.InvalidRequest)
		}
		switch c.MatchType {
		case kmsg.QuotasMatchTypeExact, kmsg.QuotasMatchTypeDefault, kmsg.QuotasMatchTypeAny:
		default:
			return nil, fmt.Errorf("%w: unknown match type %d", kerr.InvalidRequest, c.MatchType)
		}
	}
	if none {
		return nil, nil
	}
	l := q.limits.Load()
	found := make(map[Entity]map[string]float64)
	for name, k := range kindOf {
		for e, v := range l.values[k] {
			if !e.matches(components, strict) {
				continue
			}
			if found[e] == nil {
				found[e] = make(map[string]float64)
			}
			found[e][name] = v
		}
	}
	out := make([]Described, 0, len(found))
	for e, v := range found {
		out = append(out, Described{e, v})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Entity.EntityPath() < out[j].Entity.EntityPath() })
	return out, nil
}

func (e Entity) matches(components []kmsg.DescribeClientQuotasRequestComponent, strict bool) bool {
	parts := 0
	for _, p := range []part{e.user, e.client} {
		if p.kind != absent {
			parts++
		}
	}
	for _, c := range components {
		p := e.user
		if c.EntityType == "client-id" {
			p = e.client
		}
		switch {
		case p.kind == absent,
			c.MatchType == kmsg.QuotasMatchTypeExact && (p.kind != named || p.name != *c.Match),
			c.MatchType == kmsg.QuotasMatchTypeDefault && p.kind != byDefault:
			return false
		}
	}
	return !strict || parts == len(components)
}

// Parts is the entity in the form of DescribeClientQuotas: a nil name is the
// default.
func (e Entity) Parts() []kmsg.DescribeClientQuotasResponseEntryEntity {
	var out []kmsg.DescribeClientQuotasResponseEntryEntity
	add := func(typ string, p part) {
		if p.kind == absent {
			return
		}
		x := kmsg.NewDescribeClientQuotasResponseEntryEntity()
		x.Type = typ
		if p.kind == named {
			x.Name = kmsg.StringPtr(p.name)
		}
		out = append(out, x)
	}
	add("user", e.user)
	add("client-id", e.client)
	return out
}
