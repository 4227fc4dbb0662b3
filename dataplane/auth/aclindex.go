package auth

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// aclIndex is all ACLs in the form in which they are asked for. It is
// immutable; with makes a changed copy.
type aclIndex struct {
	byResource map[Resource]*resourceACL
	// prefixes holds, by resource type, the lengths of the prefixed patterns
	// there are, longest first: a name is tried once for each length.
	prefixes [kmsg.ACLResourceTypeUser + 1][]int
}

// resourceACL is one resource's entries, by principal.
type resourceACL struct {
	all  []Entry
	by   map[string][]Entry
	star []Entry // of User:*
}

func newResourceACL(entries []Entry) *resourceACL {
	r := &resourceACL{all: entries, by: make(map[string][]Entry)}
	for _, e := range entries {
		if e.Principal == WildcardUser {
			r.star = append(r.star, e)
		} else {
			r.by[e.Principal] = append(r.by[e.Principal], e)
		}
	}
	return r
}

func newACLIndex(bindings map[Resource][]Entry) *aclIndex {
	x := &aclIndex{byResource: make(map[Resource]*resourceACL, len(bindings))}
	for r, entries := range bindings {
		if len(entries) > 0 {
			x.byResource[r] = newResourceACL(entries)
		}
	}
	x.indexPrefixes()
	return x
}

// with returns an index in which one resource has these entries.
func (x *aclIndex) with(r Resource, entries []Entry) *aclIndex {
	n := &aclIndex{byResource: make(map[Resource]*resourceACL, len(x.byResource)+1)}
	for k, v := range x.byResource {
		n.byResource[k] = v
	}
	if len(entries) == 0 {
		delete(n.byResource, r)
	} else {
		n.byResource[r] = newResourceACL(entries)
	}
	n.indexPrefixes()
	return n
}

func (x *aclIndex) indexPrefixes() {
	for r := range x.byResource {
		if r.Pattern == kmsg.ACLResourcePatternTypePrefixed && int(r.Type) < len(x.prefixes) {
			if l := &x.prefixes[r.Type]; !slices.Contains(*l, len(r.Name)) {
				*l = append(*l, len(r.Name))
			}
		}
	}
	for i := range x.prefixes {
		slices.SortFunc(x.prefixes[i], func(a, b int) int { return b - a })
	}
}

// verdict gathers what the matching ACLs say.
type verdict struct {
	found, allow, deny bool
}

// decide looks at every pattern that applies to the resource. It does not
// allocate.
func (x *aclIndex) decide(principal, host string, op kmsg.ACLOperation, typ kmsg.ACLResourceType, name string) verdict {
	var v verdict
	v.add(x.byResource[Resource{typ, name, kmsg.ACLResourcePatternTypeLiteral}], principal, host, op)
	if name != Wildcard {
		v.add(x.byResource[Resource{typ, Wildcard, kmsg.ACLResourcePatternTypeLiteral}], principal, host, op)
	}
	if typ >= 0 && int(typ) < len(x.prefixes) {
		for _, n := range x.prefixes[typ] {
			if n <= len(name) {
				v.add(x.byResource[Resource{typ, name[:n], kmsg.ACLResourcePatternTypePrefixed}], principal, host, op)
			}
		}
	}
	return v
}

func (v *verdict) add(r *resourceACL, principal, host string, op kmsg.ACLOperation) {
	if r == nil {
		return
	}
	v.found = true
	v.entries(r.by[principal], host, op)
	v.entries(r.star, host, op)
}

func (v *verdict) entries(list []Entry, host string, op kmsg.ACLOperation) {
	for i := range list {
		e := &list[i]
		if e.Host != Wildcard && e.Host != host {
			continue
		}
		if e.Permission == kmsg.ACLPermissionTypeDeny {
			v.deny = v.deny || e.Operation == op || e.Operation == kmsg.ACLOperationAll
		} else {
			v.allow = v.allow || implies(e.Operation, op)
		}
	}
}

// implies says whether being allowed have means being allowed want, too.
func implies(have, want kmsg.ACLOperation) bool {
	if have == want || have == kmsg.ACLOperationAll {
		return true
	}
	switch want {
	case kmsg.ACLOperationDescribe:
		return have == kmsg.ACLOperationRead || have == kmsg.ACLOperationWrite || have == kmsg.ACLOperationDelete || have == kmsg.ACLOperationAlter
	case kmsg.ACLOperationDescribeConfigs:
		return have == kmsg.ACLOperationAlterConfigs
	}
	return false
}

// anyAllowed says whether some resource of the type could exist on which op is
// allowed: there is an allow that no deny covers whole (KIP-679).
func (x *aclIndex) anyAllowed(principal, host string, op kmsg.ACLOperation, typ kmsg.ACLResourceType) (allowed, denied bool) {
	var all verdict
	all.add(x.byResource[Resource{typ, Wildcard, kmsg.ACLResourcePatternTypeLiteral}], principal, host, op)
	if all.deny {
		return false, true
	}
	for r, acl := range x.byResource {
		if r.Type != typ {
			continue
		}
		var v verdict
		v.add(acl, principal, host, op)
		if !v.allow || v.deny {
			continue
		}
		if !x.covered(r, principal, host, op) {
			return true, false
		}
	}
	return false, false
}

// covered says whether a prefixed pattern that takes in the whole of r denies.
func (x *aclIndex) covered(r Resource, principal, host string, op kmsg.ACLOperation) bool {
	if r.Name == Wildcard && r.Pattern == kmsg.ACLResourcePatternTypeLiteral {
		return false
	}
	var v verdict
	for _, n := range x.prefixes[r.Type] {
		if n <= len(r.Name) {
			v.add(x.byResource[Resource{r.Type, r.Name[:n], kmsg.ACLResourcePatternTypePrefixed}], principal, host, op)
		}
	}
	return v.deny
}
