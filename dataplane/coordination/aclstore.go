package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ACLResource names the resource pattern that a list of ACLs is for.
type ACLResource struct {
	Type     string // as in the path: Topic, Group, Cluster, TransactionalId, DelegationToken, User
	Name     string // "*" is the wildcard of literal patterns
	Prefixed bool
}

// ACL is one entry, in the words of Kafka's JSON.
type ACL struct {
	Principal  string `json:"principal"`      // User:name
	Permission string `json:"permissionType"` // Allow, Deny
	Operation  string `json:"operation"`      // Read, Write, ...
	Host       string `json:"host"`           // * or an address
}

type aclJSON struct {
	Version int   `json:"version"`
	ACLs    []ACL `json:"acls"`
}

// NoACLs is the version of a list that does not exist.
const NoACLs int32 = -1

func (r ACLResource) root() string {
	if r.Prefixed {
		return "/kafka-acl-extended/prefixed/" + r.Type
	}
	return "/kafka-acl/" + r.Type
}

func (r ACLResource) path() string { return r.root() + "/" + r.Name }

// ACLResources lists all resource patterns that have ACLs.
func (c *Client) ACLResources(ctx context.Context) ([]ACLResource, error) {
	var out []ACLResource
	for _, prefixed := range []bool{false, true} {
		root := "/kafka-acl"
		if prefixed {
			root = "/kafka-acl-extended/prefixed"
		}
		types, err := c.Children(ctx, root)
		if err != nil && !errors.Is(err, ErrNoNode) {
			return nil, err
		}
		for _, t := range types {
			names, err := c.Children(ctx, root+"/"+t)
			if err != nil && !errors.Is(err, ErrNoNode) {
				return nil, err
			}
			for _, n := range names {
				out = append(out, ACLResource{Type: t, Name: n, Prefixed: prefixed})
			}
		}
	}
	return out, nil
}

// ACLs reads a list and its version; an absent one is empty, with NoACLs.
func (c *Client) ACLs(ctx context.Context, r ACLResource) ([]ACL, int32, error) {
	data, st, err := c.Get(ctx, r.path())
	if errors.Is(err, ErrNoNode) {
		return nil, NoACLs, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var j aclJSON
	if len(data) > 0 {
		if err := json.Unmarshal(data, &j); err != nil {
			return nil, 0, fmt.Errorf("coordination: ACLs of %s: %w", r.path(), err)
		}
	}
	return j.ACLs, st.Version, nil
}

// SetACLs replaces a list if it still has the version that was read (NoACLs: if
// it still is absent), removes it when it is empty, and tells all brokers.
// ErrBadVersion: read again and retry.
func (c *Client) SetACLs(ctx context.Context, r ACLResource, acls []ACL, version int32) error {
	data, _ := json.Marshal(aclJSON{1, acls})
	var err error
	switch {
	case len(acls) == 0 && version == NoACLs:
		return nil
	case len(acls) == 0:
		err = c.Delete(ctx, r.path(), version)
	case version == NoACLs:
		if err = c.EnsurePath(ctx, r.root()); err == nil {
			err = c.Create(ctx, r.path(), data)
		}
	default:
		_, err = c.Set(ctx, r.path(), data, version)
	}
	if errors.Is(err, ErrNodeExists) || errors.Is(err, ErrNoNode) {
		err = ErrBadVersion
	}
	if err != nil {
		return err
	}
	if r.Prefixed {
		note, _ := json.Marshal(map[string]any{"version": 1, "resourceType": enumName(r.Type), "name": r.Name, "patternType": "PREFIXED"})
		return c.notify(ctx, ExtACLChangesPath+"/acl_changes_", note)
	}
	return c.notify(ctx, ACLChangesPath+"/acl_changes_", []byte(enumName(r.Type)+":"+r.Name))
}

// aclTypes are the resource types by their name in paths and as an enum.
var aclTypes = map[string]string{
	"Topic": "TOPIC", "Group": "GROUP", "Cluster": "CLUSTER", "TransactionalId": "TRANSACTIONAL_ID",
	"DelegationToken": "DELEGATION_TOKEN", "User": "USER",
}

func enumName(t string) string {
	if e := aclTypes[t]; e != "" {
		return e
	}
	return strings.ToUpper(t)
}

func pathName(enum string) string {
	for t, e := range aclTypes {
		if e == enum {
			return t
		}
	}
	return enum
}

var errNotification = errors.New("coordination: unreadable change notification")

// ListenACLChanges calls fn for each resource whose list was written, one call
// at a time, those still noted first; close both listeners in the end. When some were
// removed before they were seen fn gets no resource: any list may have changed. For fn's
// errors see Listen.
func (c *Client) ListenACLChanges(ctx context.Context, fn func(r ACLResource) error) ([]*Listener, error) {
	one := make(chan struct{}, 1) // the two listeners have a goroutine each
	call := func(r ACLResource) error {
		one <- struct{}{}
		defer func() { <-one }()
		return fn(r)
	}
	missed := func() error { return call(ACLResource{}) }
	literal, err := c.Listen(ctx, ACLChangesPath, "acl_changes_", func(data []byte) error {
		t, name, ok := strings.Cut(string(data), ":")
		if !ok {
			return errNotification
		}
		return call(ACLResource{Type: pathName(t), Name: name})
	}, missed)
	if err != nil {
		return nil, err
	}
	extended, err := c.Listen(ctx, ExtACLChangesPath, "acl_changes_", func(data []byte) error {
		var j struct {
			Type string `json:"resourceType"`
			Name string `json:"name"`
		}
		if json.Unmarshal(data, &j) != nil {
			return errNotification
		}
		return call(ACLResource{Type: pathName(j.Type), Name: j.Name, Prefixed: true})
	}, missed)
	if err != nil {
		literal.Close()
		return nil, err
	}
	return []*Listener{literal, extended}, nil
}
