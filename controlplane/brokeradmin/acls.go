package brokeradmin

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/tenants"
)

// ACL is one access rule. The words are those of the API: resource types topic,
// group, cluster, transactional_id; pattern types literal, prefixed; operations
// as Kafka's, in snake case; permissions allow, deny.
type ACL struct {
	User                                    string // without User:
	Host                                    string // * is any
	ResourceType, ResourceName, PatternType string
	Operation, Permission                   string
}

var (
	resourceTypes = map[string]kmsg.ACLResourceType{
		"topic": kmsg.ACLResourceTypeTopic, "group": kmsg.ACLResourceTypeGroup,
		"cluster": kmsg.ACLResourceTypeCluster, "transactional_id": kmsg.ACLResourceTypeTransactionalId,
	}
	patternTypes = map[string]kmsg.ACLResourcePatternType{
		"literal": kmsg.ACLResourcePatternTypeLiteral, "prefixed": kmsg.ACLResourcePatternTypePrefixed,
	}
	operations = map[string]kmsg.ACLOperation{
		"all": kmsg.ACLOperationAll, "read": kmsg.ACLOperationRead, "write": kmsg.ACLOperationWrite,
		"create": kmsg.ACLOperationCreate, "delete": kmsg.ACLOperationDelete, "alter": kmsg.ACLOperationAlter,
		"describe": kmsg.ACLOperationDescribe, "cluster_action": kmsg.ACLOperationClusterAction,
		"describe_configs": kmsg.ACLOperationDescribeConfigs, "alter_configs": kmsg.ACLOperationAlterConfigs,
		"idempotent_write": kmsg.ACLOperationIdempotentWrite,
	}
	permissions = map[string]kmsg.ACLPermissionType{
		"allow": kmsg.ACLPermissionTypeAllow, "deny": kmsg.ACLPermissionTypeDeny,
	}
)

// codes are the numbers of an ACL's words.
type codes struct {
	resource   kmsg.ACLResourceType
	pattern    kmsg.ACLResourcePatternType
	operation  kmsg.ACLOperation
	permission kmsg.ACLPermissionType
}

// clusterName is the one name of a cluster as a resource.
const clusterName = "kafka-cluster"

// name is the resource's name on the wire; a cluster's may be left out.
func (r ACL) name() string {
	if r.ResourceType == "cluster" && r.ResourceName == "" {
		return clusterName
	}
	return r.ResourceName
}

func (r ACL) codes() (c codes, err error) {
	look := func(what, word string, ok bool) {
		if !ok && err == nil {
			err = fmt.Errorf("%w: %s %q", ErrWish, what, word)
		}
	}
	var ok bool
	c.resource, ok = resourceTypes[r.ResourceType]
	look("resource type", r.ResourceType, ok)
	c.pattern, ok = patternTypes[r.PatternType]
	look("pattern type", r.PatternType, ok)
	c.operation, ok = operations[r.Operation]
	look("operation", r.Operation, ok)
	c.permission, ok = permissions[r.Permission]
	look("permission", r.Permission, ok)
	return c, err
}

func (r ACL) String() string {
	return fmt.Sprintf("%s %s %s on %s %s %s", r.Permission, r.User, r.Operation, r.PatternType, r.ResourceType, r.ResourceName)
}

// EnsureACL makes the rule; one that is there is success.
func (a *Admin) EnsureACL(ctx context.Context, r ACL) error {
	c, err := r.codes()
	if err != nil {
		return err
	}
	there, err := hasACL(ctx, a.cl, r, c)
	if err != nil {
		return err
	}
	if !there {
		req := kmsg.NewPtrCreateACLsRequest()
		n := kmsg.NewCreateACLsRequestCreation()
		n.ResourceType, n.ResourceName, n.ResourcePatternType = c.resource, r.name(), c.pattern
		n.Principal, n.Host, n.Operation, n.PermissionType = tenants.Principal(r.User), r.Host, c.operation, c.permission
		req.Creations = append(req.Creations, n)
		resp, err := req.RequestWith(ctx, a.cl)
		if err != nil {
			return fmt.Errorf("create rule (%v): %w", r, err)
		}
		for _, x := range resp.Results {
			if err := codeError(x.ErrorCode, x.ErrorMessage); err != nil {
				return fmt.Errorf("create rule (%v): %w", r, err)
			}
		}
	}
	return a.everywhere(ctx, "rule "+r.String(), func(ctx context.Context, b *kgo.Broker) (bool, error) {
		return hasACL(ctx, b, r, c)
	})
}

// DeleteACL removes the rule; one that is not there is success.
func (a *Admin) DeleteACL(ctx context.Context, r ACL) error {
	c, err := r.codes()
	if err != nil {
		return err
	}
	req := kmsg.NewPtrDeleteACLsRequest()
	f := kmsg.NewDeleteACLsRequestFilter()
	principal, name := tenants.Principal(r.User), r.name()
	f.ResourceType, f.ResourceName, f.ResourcePatternType = c.resource, &name, c.pattern
	f.Principal, f.Host, f.Operation, f.PermissionType = &principal, &r.Host, c.operation, c.permission
	req.Filters = append(req.Filters, f)
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return fmt.Errorf("delete rule (%v): %w", r, err)
	}
	for _, x := range resp.Results {
		if err := codeError(x.ErrorCode, x.ErrorMessage); err != nil {
			return fmt.Errorf("delete rule (%v): %w", r, err)
		}
	}
	return a.everywhere(ctx, "deletion of rule "+r.String(), func(ctx context.Context, b *kgo.Broker) (bool, error) {
		there, err := hasACL(ctx, b, r, c)
		return !there, err
	})
}

func hasACL(ctx context.Context, q kmsg.Requestor, r ACL, c codes) (bool, error) {
	req := kmsg.NewPtrDescribeACLsRequest()
	principal, name := tenants.Principal(r.User), r.name()
	req.ResourceType, req.ResourceName, req.ResourcePatternType = c.resource, &name, c.pattern
	req.Principal, req.Host, req.Operation, req.PermissionType = &principal, &r.Host, c.operation, c.permission
	resp, err := req.RequestWith(ctx, q)
	if err == nil {
		err = codeError(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return false, fmt.Errorf("describe rule (%v): %w", r, err)
	}
	return len(resp.Resources) > 0, nil
}
