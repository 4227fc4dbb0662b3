package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

// ACLClient is what the store needs of the coordination client.
type ACLClient interface {
	ACLResources(ctx context.Context) ([]coordination.ACLResource, error)
	ACLs(ctx context.Context, r coordination.ACLResource) ([]coordination.ACL, int32, error)
	SetACLs(ctx context.Context, r coordination.ACLResource, acls []coordination.ACL, version int32) error
}

// casTries bounds the rounds of read, change and conditional write.
const casTries = 20

// ZooKeeperStore is the Store over Kafka's znodes /kafka-acl and
// /kafka-acl-extended. Entries that it does not understand, as a newer Kafka may
// have written them, are kept as they are on every change.
type ZooKeeperStore struct {
	c   ACLClient
	log *slog.Logger
}

// NewZooKeeperStore makes a store; log may be nil.
func NewZooKeeperStore(c ACLClient, log *slog.Logger) *ZooKeeperStore {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &ZooKeeperStore{c: c, log: log}
}

// FromZooKeeper is the resource that a znode or a change notification names;
// ok is false for types that are not known.
func FromZooKeeper(r coordination.ACLResource) (Resource, bool) {
	typ, ok := typeByName[plainWord(r.Type)]
	if !ok || r.Name == "" {
		return Resource{}, false
	}
	out := Resource{Type: typ, Name: r.Name, Pattern: kmsg.ACLResourcePatternTypeLiteral}
	if r.Prefixed {
		out.Pattern = kmsg.ACLResourcePatternTypePrefixed
	}
	return out, true
}

func toZooKeeper(r Resource) coordination.ACLResource {
	return coordination.ACLResource{Type: typeNames[r.Type], Name: r.Name, Prefixed: r.Pattern == kmsg.ACLResourcePatternTypePrefixed}
}

// Load reads every znode.
func (s *ZooKeeperStore) Load(ctx context.Context) (map[Resource][]Entry, error) {
	nodes, err := s.c.ACLResources(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[Resource][]Entry, len(nodes))
	for _, n := range nodes {
		r, ok := FromZooKeeper(n)
		if !ok {
			s.log.Warn("ACLs of an unknown resource type are left out", "type", n.Type)
			continue
		}
		entries, err := s.Get(ctx, r)
		if err != nil {
			return nil, err
		}
		out[r] = entries
	}
	return out, nil
}

// Get reads one znode.
func (s *ZooKeeperStore) Get(ctx context.Context, r Resource) ([]Entry, error) {
	acls, _, err := s.c.ACLs(ctx, toZooKeeper(r))
	if err != nil {
		return nil, err
	}
	return s.understood(r, acls), nil
}

// understood turns the words of a znode into entries. A deny that is not
// understood must not open what it closes: it becomes a deny of all.
func (s *ZooKeeperStore) understood(r Resource, acls []coordination.ACL) []Entry {
	var out []Entry
	for _, a := range acls {
		e, ok := fromWords(a)
		if !ok {
			s.log.Warn("an ACL with unknown words is left out, or read as a deny of everything", "resource", r.Name, "permission", clip(a.Permission), "operation", clip(a.Operation))
			if permByName[plainWord(a.Permission)] == kmsg.ACLPermissionTypeAllow {
				continue
			}
			e = Entry{Principal: a.Principal, Host: a.Host, Operation: kmsg.ACLOperationAll, Permission: kmsg.ACLPermissionTypeDeny}
		}
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

func fromWords(a coordination.ACL) (Entry, bool) {
	op, ok1 := opByName[plainWord(a.Operation)]
	perm, ok2 := permByName[plainWord(a.Permission)]
	return Entry{Principal: a.Principal, Host: plainHost(a.Host), Operation: op, Permission: perm}, ok1 && ok2 && a.Principal != "" && a.Host != ""
}

func toWords(e Entry) coordination.ACL {
	return coordination.ACL{Principal: e.Principal, Permission: permNames[e.Permission], Operation: opNames[e.Operation], Host: e.Host}
}

// plainHost brings an address into the one form that a connection's has.
func plainHost(h string) string {
	if a, err := netip.ParseAddr(h); err == nil {
		return a.Unmap().String()
	}
	return h
}

// Add adds entries to a znode.
func (s *ZooKeeperStore) Add(ctx context.Context, r Resource, entries []Entry) error {
	return s.change(ctx, r, func(acls []coordination.ACL) ([]coordination.ACL, error) {
		for _, e := range entries {
			e.Host = plainHost(e.Host)
			if !slices.ContainsFunc(acls, func(a coordination.ACL) bool { have, ok := fromWords(a); return ok && have == e }) {
				acls = append(acls, toWords(e))
			}
		}
		if len(acls) > maxACLEntries {
			return nil, fmt.Errorf("%w: more than %d ACLs on one resource", kerr.InvalidRequest, maxACLEntries)
		}
		return acls, nil
	})
}

// Delete removes entries from a znode.
func (s *ZooKeeperStore) Delete(ctx context.Context, r Resource, entries []Entry) error {
	return s.change(ctx, r, func(acls []coordination.ACL) ([]coordination.ACL, error) {
		return slices.DeleteFunc(slices.Clone(acls), func(a coordination.ACL) bool {
			have, ok := fromWords(a)
			return ok && slices.Contains(entries, have)
		}), nil
	})
}

// change reads, changes and writes a znode until nobody was faster. It writes
// also what did not change: the notification of an earlier write may be lost.
func (s *ZooKeeperStore) change(ctx context.Context, r Resource, f func([]coordination.ACL) ([]coordination.ACL, error)) error {
	for range casTries {
		acls, version, err := s.c.ACLs(ctx, toZooKeeper(r))
		if err != nil {
			return err
		}
		if acls, err = f(acls); err != nil {
			return err
		}
		err = s.c.SetACLs(ctx, toZooKeeper(r), acls, version)
		if !errors.Is(err, coordination.ErrBadVersion) {
			return err
		}
	}
	return fmt.Errorf("%w: ACLs of %q change too often", coordination.ErrBadVersion, r.Name)
}

// Watch keeps an Authorizer current: it is told of every change by any broker.
// stop ends it. A read that a lost session has cut off is made again under the
// next; other failed reads are logged, and the next Reload heals them.
func Watch(ctx context.Context, c *coordination.Client, a *Authorizer) (stop func(), err error) {
	run, cancel := context.WithCancel(context.Background())
	listeners, err := c.ListenACLChanges(ctx, func(n coordination.ACLResource) error {
		if n == (coordination.ACLResource{}) {
			if err := a.Reload(run); run.Err() == nil {
				return err
			}
			return nil
		}
		r, ok := FromZooKeeper(n)
		if !ok {
			return nil
		}
		if err := a.Refresh(run, r); run.Err() == nil {
			return err
		}
		return nil
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return func() {
		cancel()
		for _, l := range listeners {
			l.Close()
		}
	}, nil
}
