package auth

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The names with a meaning of their own.
const (
	Wildcard      = "*"
	WildcardUser  = "User:*"
	ClusterName   = "kafka-cluster" // the one name of resources of type Cluster
	maxACLName    = 512
	maxACLEntries = 4000 // of one resource: a znode holds 1 MB
)

// Resource names what an ACL protects.
type Resource struct {
	Type    kmsg.ACLResourceType
	Name    string
	Pattern kmsg.ACLResourcePatternType // literal or prefixed
}

// Entry is who may, or may not, do what from where.
type Entry struct {
	Principal  string // "User:x", "User:*"
	Host       string // "*" or an address
	Operation  kmsg.ACLOperation
	Permission kmsg.ACLPermissionType
}

// Binding is an entry on a resource.
type Binding struct {
	Resource
	Entry
}

// Filter selects bindings. nil fields and the values "any" match everything; a
// pattern of "match" with a name finds every pattern that would apply to a
// resource of that name.
type Filter struct {
	Type       kmsg.ACLResourceType
	Name       *string
	Pattern    kmsg.ACLResourcePatternType
	Principal  *string
	Host       *string
	Operation  kmsg.ACLOperation
	Permission kmsg.ACLPermissionType
}

// Check refuses filters with unknown values: INVALID_REQUEST.
func (f *Filter) Check() error {
	switch {
	case f.Type < kmsg.ACLResourceTypeAny || f.Type > kmsg.ACLResourceTypeUser:
		return invalid("unknown resource type %d", f.Type)
	case f.Pattern < kmsg.ACLResourcePatternTypeAny || f.Pattern > kmsg.ACLResourcePatternTypePrefixed:
		return invalid("unknown pattern type %d", f.Pattern)
	case f.Operation < kmsg.ACLOperationAny || f.Operation > kmsg.ACLOperationDescribeTokens:
		return invalid("unknown operation %d", f.Operation)
	case f.Permission < kmsg.ACLPermissionTypeAny || f.Permission > kmsg.ACLPermissionTypeAllow:
		return invalid("unknown permission type %d", f.Permission)
	}
	return nil
}

// Matches says whether the filter selects the binding.
func (f *Filter) Matches(b Binding) bool {
	return f.matchesResource(b.Resource) &&
		(f.Principal == nil || *f.Principal == b.Principal) &&
		(f.Host == nil || *f.Host == b.Host) &&
		(f.Operation == kmsg.ACLOperationAny || f.Operation == b.Operation) &&
		(f.Permission == kmsg.ACLPermissionTypeAny || f.Permission == b.Permission)
}

func (f *Filter) matchesResource(r Resource) bool {
	if f.Type != kmsg.ACLResourceTypeAny && f.Type != r.Type {
		return false
	}
	switch f.Pattern {
	case kmsg.ACLResourcePatternTypeAny:
	case kmsg.ACLResourcePatternTypeMatch:
		if f.Name == nil {
			return true
		}
		if r.Pattern == kmsg.ACLResourcePatternTypePrefixed {
			return strings.HasPrefix(*f.Name, r.Name)
		}
		return r.Name == *f.Name || r.Name == Wildcard
	default:
		if f.Pattern != r.Pattern {
			return false
		}
	}
	return f.Name == nil || *f.Name == r.Name
}

// Check refuses bindings that cannot be created: INVALID_REQUEST.
func (b *Binding) Check() error {
	switch {
	case b.Type <= kmsg.ACLResourceTypeAny || b.Type > kmsg.ACLResourceTypeUser:
		return invalid("a resource type must be given")
	case b.Pattern != kmsg.ACLResourcePatternTypeLiteral && b.Pattern != kmsg.ACLResourcePatternTypePrefixed:
		return invalid("the pattern type must be literal or prefixed")
	case b.Name == "" || len(b.Name) > maxACLName:
		return invalid("a resource name has 1 to %d characters", maxACLName)
	case strings.ContainsAny(b.Name, "/\x00") || b.Name == "." || b.Name == "..":
		return invalid("the resource name cannot be stored")
	case b.Type == kmsg.ACLResourceTypeCluster && b.Name != ClusterName:
		return invalid("the only resource of type cluster is %s", ClusterName)
	case b.Operation <= kmsg.ACLOperationAny || b.Operation > kmsg.ACLOperationDescribeTokens:
		return invalid("an operation must be given")
	case b.Permission != kmsg.ACLPermissionTypeAllow && b.Permission != kmsg.ACLPermissionTypeDeny:
		return invalid("the permission type must be allow or deny")
	case len(b.Principal) > maxACLName:
		return invalid("the principal is too long")
	}
	if kind, name, ok := strings.Cut(b.Principal, ":"); !ok || kind == "" || name == "" {
		return invalid("the principal must be written Type:name")
	}
	if b.Host != Wildcard {
		if _, err := netip.ParseAddr(b.Host); err != nil {
			return invalid("the host must be * or an IP address")
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", kerr.InvalidRequest, fmt.Sprintf(format, args...))
}

// The words of the znodes, by value of the wire.
var (
	typeNames = map[kmsg.ACLResourceType]string{
		kmsg.ACLResourceTypeTopic: "Topic", kmsg.ACLResourceTypeGroup: "Group", kmsg.ACLResourceTypeCluster: "Cluster",
		kmsg.ACLResourceTypeTransactionalId: "TransactionalId", kmsg.ACLResourceTypeDelegationToken: "DelegationToken", kmsg.ACLResourceTypeUser: "User",
	}
	opNames = map[kmsg.ACLOperation]string{
		kmsg.ACLOperationAll: "All", kmsg.ACLOperationRead: "Read", kmsg.ACLOperationWrite: "Write", kmsg.ACLOperationCreate: "Create",
		kmsg.ACLOperationDelete: "Delete", kmsg.ACLOperationAlter: "Alter", kmsg.ACLOperationDescribe: "Describe", kmsg.ACLOperationClusterAction: "ClusterAction",
		kmsg.ACLOperationDescribeConfigs: "DescribeConfigs", kmsg.ACLOperationAlterConfigs: "AlterConfigs", kmsg.ACLOperationIdempotentWrite: "IdempotentWrite",
		kmsg.ACLOperationCreateTokens: "CreateTokens", kmsg.ACLOperationDescribeTokens: "DescribeTokens",
	}
	permNames = map[kmsg.ACLPermissionType]string{kmsg.ACLPermissionTypeAllow: "Allow", kmsg.ACLPermissionTypeDeny: "Deny"}

	typeByName = invert(typeNames)
	opByName   = invert(opNames)
	permByName = invert(permNames)
)

// invert maps a word, in lower case without underscores, to its value, so that
// both spellings of Kafka's (TransactionalId, TRANSACTIONAL_ID) are understood.
func invert[K comparable](m map[K]string) map[string]K {
	out := make(map[string]K, len(m))
	for k, v := range m {
		out[plainWord(v)] = k
	}
	return out
}

func plainWord(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "") }
