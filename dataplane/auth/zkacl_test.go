package auth

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
	"penstock/dataplane/coordination/zktest"
)

// Two brokers on one real ZooKeeper: what one changes holds on the other.
func TestChangesReachOtherBrokers(t *testing.T) {
	chroot := zktest.Chroot(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	broker := func() *Authorizer {
		c, err := coordination.Connect(ctx, coordination.Config{Connect: chroot, SessionTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		if err := c.EnsureLayout(ctx); err != nil {
			t.Fatal(err)
		}
		a, err := OpenAuthorizer(ctx, AuthorizerConfig{Store: NewZooKeeperStore(c, nil)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Close)
		stop, err := Watch(ctx, c, a)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		return a
	}
	one, two := broker(), broker()
	lit := acl(on(topicT, "t", literal), "User:a", "*", opRead, allow)
	pre := acl(on(kmsg.ACLResourceTypeTransactionalId, "tx-", prefixed), "User:a", "*", opWrite, allow)
	tx := acl(on(kmsg.ACLResourceTypeTransactionalId, "lit", literal), "User:a", "*", opWrite, allow)
	create(t, one, lit, pre, tx)
	holds := func(a *Authorizer) bool {
		return a.Authorize("User:a", "h", opRead, topicT, "t") && a.Authorize("User:a", "h", opWrite, pre.Type, "tx-1") && a.Authorize("User:a", "h", opWrite, tx.Type, "lit")
	}
	if !holds(one) {
		t.Fatal("not in force where it was created")
	}
	eventually(t, "news of new ACLs", func() bool { return holds(two) })
	three := broker() // one that starts later
	if !holds(three) {
		t.Fatal("not loaded at start")
	}
	out := two.Delete(ctx, []Filter{{Type: kmsg.ACLResourceTypeAny, Pattern: kmsg.ACLResourcePatternTypeAny, Operation: kmsg.ACLOperationAny, Permission: kmsg.ACLPermissionTypeAny}})
	if len(out[0].Matched) != 3 || out[0].Err != nil {
		t.Fatalf("%+v", out)
	}
	eventually(t, "news of deleted ACLs", func() bool {
		left, _ := one.Describe(Filter{Type: kmsg.ACLResourceTypeAny, Pattern: kmsg.ACLResourcePatternTypeAny, Operation: kmsg.ACLOperationAny, Permission: kmsg.ACLPermissionTypeAny})
		return len(left) == 0
	})
}

// Whatever stands in a znode: only words that are understood allow anything.
func FuzzWords(f *testing.F) {
	f.Add("User:a", "Allow", "Read", "*")
	f.Add("User:a", "Deny", "Newfangled", "::ffff:1.2.3.4")
	s := NewZooKeeperStore(newFakeZK(), nil)
	f.Fuzz(func(t *testing.T, principal, permission, op, host string) {
		in := coordination.ACL{Principal: principal, Permission: permission, Operation: op, Host: host}
		for _, e := range s.understood(Resource{}, []coordination.ACL{in}) {
			if e.Permission != allow && e.Permission != deny {
				t.Fatalf("permission %d", e.Permission)
			}
			if e.Permission == allow && (plainWord(permission) != "allow" || opNames[e.Operation] == "" || plainWord(op) != plainWord(opNames[e.Operation])) {
				t.Fatalf("%+v became %+v", in, e)
			}
		}
	})
}
