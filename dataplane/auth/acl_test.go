package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"penstock/dataplane/coordination"
)

const (
	topicT   = kmsg.ACLResourceTypeTopic
	groupT   = kmsg.ACLResourceTypeGroup
	literal  = kmsg.ACLResourcePatternTypeLiteral
	prefixed = kmsg.ACLResourcePatternTypePrefixed
	opAll    = kmsg.ACLOperationAll
	opRead   = kmsg.ACLOperationRead
	opWrite  = kmsg.ACLOperationWrite
	opDesc   = kmsg.ACLOperationDescribe
	allow    = kmsg.ACLPermissionTypeAllow
	deny     = kmsg.ACLPermissionTypeDeny
)

func on(typ kmsg.ACLResourceType, name string, pattern kmsg.ACLResourcePatternType) Resource {
	return Resource{typ, name, pattern}
}

func acl(r Resource, who, host string, op kmsg.ACLOperation, p kmsg.ACLPermissionType) Binding {
	return Binding{r, Entry{who, host, op, p}}
}

// fakeZK is the ACL part of ZooKeeper in memory.
type fakeZK struct {
	mu       sync.Mutex
	lists    map[coordination.ACLResource][]coordination.ACL
	versions map[coordination.ACLResource]int32
	conflict int // number of writes that somebody else is faster than
	fail     error
}

func newFakeZK() *fakeZK {
	return &fakeZK{lists: map[coordination.ACLResource][]coordination.ACL{}, versions: map[coordination.ACLResource]int32{}}
}

func (f *fakeZK) ACLResources(context.Context) (out []coordination.ACLResource, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.lists {
		out = append(out, r)
	}
	return out, f.fail
}

func (f *fakeZK) ACLs(_ context.Context, r coordination.ACLResource) ([]coordination.ACL, int32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.lists[r]
	if !ok {
		return nil, coordination.NoACLs, f.fail
	}
	return slices.Clone(l), f.versions[r], f.fail
}

func (f *fakeZK) SetACLs(_ context.Context, r coordination.ACLResource, l []coordination.ACL, version int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	have := coordination.NoACLs
	if _, ok := f.lists[r]; ok {
		have = f.versions[r]
	}
	if f.conflict > 0 {
		f.conflict--
		f.lists[r] = append(f.lists[r], coordination.ACL{Principal: fmt.Sprintf("User:other%d", f.conflict), Permission: "Allow", Operation: "Read", Host: "*"})
		f.versions[r]++
		return coordination.ErrBadVersion
	}
	if f.fail != nil {
		return f.fail
	}
	if have != version {
		return coordination.ErrBadVersion
	}
	if len(l) == 0 {
		delete(f.lists, r)
		return nil
	}
	f.lists[r] = l
	f.versions[r]++
	return nil
}

func newAuthorizer(t testing.TB, zk *fakeZK, change ...func(*AuthorizerConfig)) *Authorizer {
	cfg := AuthorizerConfig{Store: NewZooKeeperStore(zk, nil), SuperUsers: []string{"User:root"}, Reload: -1}
	for _, f := range change {
		f(&cfg)
	}
	a, err := OpenAuthorizer(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func create(t testing.TB, a *Authorizer, b ...Binding) {
	t.Helper()
	for i, err := range a.Create(context.Background(), b) {
		if err != nil {
			t.Fatalf("%+v: %v", b[i], err)
		}
	}
}

func TestAuthorize(t *testing.T) {
	a := newAuthorizer(t, newFakeZK())
	create(t, a,
		acl(on(topicT, "orders", literal), "User:w", "*", opWrite, allow),
		acl(on(topicT, "orders", literal), "User:h", "10.0.0.1", opRead, allow),
		acl(on(topicT, "log-", prefixed), "User:p", "*", opRead, allow),
		acl(on(topicT, "log-secret", literal), "User:p", "*", opRead, deny),
		acl(on(topicT, "log-s", prefixed), "User:q", "*", opAll, allow),
		acl(on(topicT, "*", literal), "User:star", "*", opRead, allow),
		acl(on(topicT, "public", literal), "User:*", "*", opRead, allow),
		acl(on(topicT, "public", literal), "User:bad", "*", opAll, deny),
		acl(on(topicT, "conf", literal), "User:c", "*", kmsg.ACLOperationAlterConfigs, allow),
		acl(on(topicT, "denied", literal), "User:d", "*", opRead, deny),
		acl(on(topicT, "denied", literal), "User:d", "*", opDesc, allow),
		acl(on(groupT, "orders", literal), "User:w", "*", opRead, allow),
	)
	for _, c := range []struct {
		who, host string
		op        kmsg.ACLOperation
		typ       kmsg.ACLResourceType
		name      string
		want      bool
	}{
		{"User:w", "1.1.1.1", opWrite, topicT, "orders", true},
		{"User:w", "1.1.1.1", opRead, topicT, "orders", false},
		{"User:w", "1.1.1.1", opDesc, topicT, "orders", true}, // implied
		{"User:w", "1.1.1.1", kmsg.ACLOperationDescribeConfigs, topicT, "orders", false},
		{"User:w", "1.1.1.1", opWrite, topicT, "orders2", false},
		{"User:w", "1.1.1.1", opWrite, groupT, "orders", false}, // another type
		{"User:w", "1.1.1.1", opRead, groupT, "orders", true},
		{"User:h", "10.0.0.1", opRead, topicT, "orders", true},
		{"User:h", "10.0.0.2", opRead, topicT, "orders", false},
		{"User:p", "h", opRead, topicT, "log-a", true},
		{"User:p", "h", opRead, topicT, "log-", true},
		{"User:p", "h", opRead, topicT, "log", false},
		{"User:p", "h", opRead, topicT, "log-secret", false}, // deny wins
		{"User:q", "h", opWrite, topicT, "log-secret", true},
		{"User:star", "h", opRead, topicT, "anything", true},
		{"User:star", "h", opRead, groupT, "anything", false},
		{"User:x", "h", opRead, topicT, "public", true},
		{"User:bad", "h", opRead, topicT, "public", false},
		{"User:bad", "h", opDesc, topicT, "public", false},
		{"User:c", "h", kmsg.ACLOperationDescribeConfigs, topicT, "conf", true},
		{"User:c", "h", opDesc, topicT, "conf", false},
		{"User:d", "h", opDesc, topicT, "denied", true}, // a deny of Read is none of Describe
		{"User:d", "h", opRead, topicT, "denied", false},
		{"User:root", "h", opAll, topicT, "denied", true},
		{"User:", "h", opRead, topicT, "nothing", false},
	} {
		if got := a.Authorize(c.who, c.host, c.op, c.typ, c.name); got != c.want {
			t.Errorf("%s %v %v %q from %s: %v", c.who, c.op, c.typ, c.name, c.host, got)
		}
	}
	var none *Authorizer
	if !none.Authorize("User:x", "h", opRead, topicT, "t") {
		t.Error("no authorizer must allow")
	}
}

func TestResourceWithoutACL(t *testing.T) {
	for _, open := range []bool{false, true} {
		a := newAuthorizer(t, newFakeZK(), func(c *AuthorizerConfig) { c.AllowEveryoneIfNoACL = open })
		create(t, a, acl(on(topicT, "t", literal), "User:a", "*", opRead, allow))
		if a.Authorize("User:b", "h", opRead, topicT, "free") != open || a.Authorize("User:b", "h", opRead, topicT, "t") {
			t.Errorf("open %v", open)
		}
	}
}

func TestAuthorizeAny(t *testing.T) {
	a := newAuthorizer(t, newFakeZK())
	create(t, a,
		acl(on(topicT, "a", literal), "User:a", "*", opWrite, allow),
		acl(on(topicT, "b", literal), "User:b", "*", opWrite, allow),
		acl(on(topicT, "b", prefixed), "User:b", "*", opWrite, deny),
		acl(on(topicT, "cc", prefixed), "User:c", "*", opWrite, allow),
		acl(on(topicT, "c", prefixed), "User:c", "*", opAll, deny),
		acl(on(topicT, "dd", prefixed), "User:d", "*", opWrite, allow),
		acl(on(topicT, "ddd", prefixed), "User:d", "*", opWrite, deny),
		acl(on(topicT, "e", literal), "User:e", "*", opWrite, allow),
		acl(on(topicT, "*", literal), "User:e", "*", opWrite, deny),
		acl(on(topicT, "*", literal), "User:f", "*", opWrite, allow),
		acl(on(topicT, "g", literal), "User:g", "*", opRead, allow),
	)
	for who, want := range map[string]bool{"a": true, "b": false, "c": false, "d": true, "e": false, "f": true, "g": false, "root": true, "z": false} {
		if got := a.AuthorizeAny("User:"+who, "h", opWrite, topicT); got != want {
			t.Errorf("%s: %v", who, got)
		}
	}
}

func TestOperationsBits(t *testing.T) {
	a := newAuthorizer(t, newFakeZK())
	create(t, a, acl(on(topicT, "t", literal), "User:a", "*", opRead, allow))
	if got, want := a.Operations("User:a", "h", topicT, "t"), int32(1<<3|1<<8); got != want {
		t.Errorf("%b", got)
	}
}

func ptr(s string) *string { return &s }

func TestFilters(t *testing.T) {
	a := newAuthorizer(t, newFakeZK())
	all := []Binding{
		acl(on(topicT, "t1", literal), "User:a", "*", opRead, allow),
		acl(on(topicT, "t1", literal), "User:b", "1.2.3.4", opWrite, deny),
		acl(on(topicT, "*", literal), "User:a", "*", opDesc, allow),
		acl(on(topicT, "t", prefixed), "User:a", "*", opAll, allow),
		acl(on(topicT, "x", prefixed), "User:a", "*", opRead, allow),
		acl(on(groupT, "t1", literal), "User:a", "*", opRead, allow),
	}
	create(t, a, all...)
	any := Filter{Type: kmsg.ACLResourceTypeAny, Pattern: kmsg.ACLResourcePatternTypeAny, Operation: kmsg.ACLOperationAny, Permission: kmsg.ACLPermissionTypeAny}
	for name, c := range map[string]struct {
		change func(*Filter)
		want   []int
	}{
		"everything":        {func(f *Filter) {}, []int{0, 1, 2, 3, 4, 5}},
		"type":              {func(f *Filter) { f.Type = groupT }, []int{5}},
		"name, any pattern": {func(f *Filter) { f.Name = ptr("t1") }, []int{0, 1, 5}},
		"name, match":       {func(f *Filter) { f.Type = topicT; f.Name = ptr("t1"); f.Pattern = kmsg.ACLResourcePatternTypeMatch }, []int{0, 1, 2, 3}},
		"no name, match":    {func(f *Filter) { f.Pattern = kmsg.ACLResourcePatternTypeMatch }, []int{0, 1, 2, 3, 4, 5}},
		"literal":           {func(f *Filter) { f.Pattern = literal; f.Type = topicT }, []int{0, 1, 2}},
		"literal star":      {func(f *Filter) { f.Pattern = literal; f.Name = ptr("*") }, []int{2}},
		"prefixed":          {func(f *Filter) { f.Pattern = prefixed; f.Name = ptr("t") }, []int{3}},
		"principal":         {func(f *Filter) { f.Principal = ptr("User:b") }, []int{1}},
		"host":              {func(f *Filter) { f.Host = ptr("1.2.3.4") }, []int{1}},
		"operation":         {func(f *Filter) { f.Operation = opRead }, []int{0, 4, 5}},
		"operation all":     {func(f *Filter) { f.Operation = opAll }, []int{3}},
		"permission":        {func(f *Filter) { f.Permission = deny }, []int{1}},
		"nothing":           {func(f *Filter) { f.Name = ptr("nope") }, nil},
	} {
		f := any
		c.change(&f)
		got, err := a.Describe(f)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v", name, got)
		}
		for _, i := range c.want {
			if !slices.Contains(got, all[i]) {
				t.Errorf("%s: %+v missing", name, all[i])
			}
		}
	}
	for _, f := range []Filter{{}, {Type: 9, Pattern: 1, Operation: 1, Permission: 1}, {Type: 1, Pattern: 5, Operation: 1, Permission: 1}, {Type: 1, Pattern: 1, Operation: 15, Permission: 1}, {Type: 1, Pattern: 1, Operation: 1, Permission: 4}} {
		if _, err := a.Describe(f); !errors.Is(err, kerr.InvalidRequest) {
			t.Errorf("%+v: %v", f, err)
		}
	}

	byType := any
	byType.Type = groupT
	out := a.Delete(context.Background(), []Filter{byType, any, {}})
	if len(out[0].Matched) != 1 || len(out[1].Matched) != 5 || !errors.Is(out[2].Err, kerr.InvalidRequest) {
		t.Fatalf("%+v", out)
	}
	if left, _ := a.Describe(any); len(left) != 0 {
		t.Fatalf("left %+v", left)
	}
	if a.Authorize("User:a", "h", opRead, topicT, "t1") {
		t.Fatal("a deleted ACL still holds")
	}
}

func TestBadBindingsAreRefusedOthersStored(t *testing.T) {
	zk := newFakeZK()
	a := newAuthorizer(t, zk)
	good := acl(on(topicT, "t", literal), "User:a", "*", opRead, allow)
	list := []Binding{good}
	for _, f := range []func(*Binding){
		func(b *Binding) { b.Type = kmsg.ACLResourceTypeAny }, func(b *Binding) { b.Type = 99 },
		func(b *Binding) { b.Pattern = kmsg.ACLResourcePatternTypeMatch }, func(b *Binding) { b.Pattern = 0 },
		func(b *Binding) { b.Name = "" }, func(b *Binding) { b.Name = "a/b" }, func(b *Binding) { b.Name = ".." },
		func(b *Binding) { b.Type, b.Name = kmsg.ACLResourceTypeCluster, "mine" },
		func(b *Binding) { b.Operation = kmsg.ACLOperationAny }, func(b *Binding) { b.Operation = 99 },
		func(b *Binding) { b.Permission = kmsg.ACLPermissionTypeAny },
		func(b *Binding) { b.Principal = "alice" }, func(b *Binding) { b.Principal = "User:" },
		func(b *Binding) { b.Host = "" }, func(b *Binding) { b.Host = "example.org" },
	} {
		b := good
		f(&b)
		list = append(list, b)
	}
	for i, err := range a.Create(context.Background(), list) {
		if (i == 0) != (err == nil) || (err != nil && !errors.Is(err, kerr.InvalidRequest)) {
			t.Errorf("%+v: %v", list[i], err)
		}
	}
	if len(zk.lists) != 1 {
		t.Fatalf("%v", zk.lists)
	}
	create(t, a, good) // again: no second entry
	if n := len(zk.lists[coordination.ACLResource{Type: "Topic", Name: "t"}]); n != 1 {
		t.Fatalf("%d entries", n)
	}
}

func TestConcurrentWritersKeepEachOthersACLs(t *testing.T) {
	zk := newFakeZK()
	a := newAuthorizer(t, zk)
	zk.conflict = 3
	create(t, a, acl(on(topicT, "t", literal), "User:a", "*", opRead, allow))
	if n := len(zk.lists[coordination.ACLResource{Type: "Topic", Name: "t"}]); n != 4 {
		t.Fatalf("%d entries", n)
	}
	if !a.Authorize("User:other1", "h", opRead, topicT, "t") {
		t.Fatal("the other writer's ACL is not seen")
	}
	zk.conflict = 1000
	if err := a.Create(context.Background(), []Binding{acl(on(topicT, "u", literal), "User:a", "*", opRead, allow)})[0]; !errors.Is(err, coordination.ErrBadVersion) {
		t.Fatal(err)
	}
}

func TestStoreErrorsAreReportedAndHarmNothing(t *testing.T) {
	zk := newFakeZK()
	a := newAuthorizer(t, zk)
	b := acl(on(topicT, "t", literal), "User:a", "*", opRead, allow)
	create(t, a, b)
	zk.fail = errors.New("no connection")
	if a.Create(context.Background(), []Binding{acl(on(topicT, "u", literal), "User:a", "*", opRead, allow)})[0] == nil {
		t.Fatal("no error")
	}
	out := a.Delete(context.Background(), []Filter{{Type: topicT, Pattern: literal, Operation: opRead, Permission: allow}})
	if len(out[0].Matched) != 1 || out[0].Matched[0].Err == nil {
		t.Fatalf("%+v", out)
	}
	if a.Reload(context.Background()) == nil || !a.Authorize("User:a", "h", opRead, topicT, "t") {
		t.Fatal("a failed read must leave the ACLs as they are")
	}
}

func TestWordsOfOthersInTheZnodes(t *testing.T) {
	zk := newFakeZK()
	zk.lists[coordination.ACLResource{Type: "TransactionalId", Name: "x", Prefixed: true}] = []coordination.ACL{
		{Principal: "User:a", Permission: "Allow", Operation: "Write", Host: "*"},
		{Principal: "User:a", Permission: "ALLOW", Operation: "DESCRIBE", Host: "::ffff:10.0.0.1"},
		{Principal: "User:b", Permission: "Allow", Operation: "Newfangled", Host: "*"},
		{Principal: "User:c", Permission: "Deny", Operation: "Newfangled", Host: "*"},
		{Principal: "User:c", Permission: "Allow", Operation: "All", Host: "*"},
	}
	zk.lists[coordination.ACLResource{Type: "Martian", Name: "x"}] = nil
	a := newAuthorizer(t, zk)
	tx := kmsg.ACLResourceTypeTransactionalId
	if !a.Authorize("User:a", "h", opWrite, tx, "xyz") || a.Authorize("User:b", "h", opWrite, tx, "xyz") {
		t.Fatal("wrong")
	}
	if a.Authorize("User:c", "h", opWrite, tx, "xyz") {
		t.Fatal("a deny that is not understood was left out")
	}
	// Changing the list keeps what is not understood.
	create(t, a, acl(on(tx, "x", prefixed), "User:d", "*", opWrite, allow))
	if n := len(zk.lists[coordination.ACLResource{Type: "TransactionalId", Name: "x", Prefixed: true}]); n != 6 {
		t.Fatalf("%d entries", n)
	}
	for _, typ := range []string{"TRANSACTIONAL_ID", "TransactionalId"} {
		if r, ok := FromZooKeeper(coordination.ACLResource{Type: typ, Name: "x"}); !ok || r.Type != tx {
			t.Fatalf("%s: %+v", typ, r)
		}
	}
}

func TestAuthorizeDoesNotAllocate(t *testing.T) {
	a := newAuthorizer(t, newFakeZK())
	create(t, a, acl(on(topicT, "t", prefixed), "User:a", "*", opRead, allow), acl(on(topicT, "topic", literal), "User:b", "*", opRead, allow))
	if n := testing.AllocsPerRun(100, func() { a.Authorize("User:a", "10.0.0.1", opRead, topicT, "topic") }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// The index must decide as the plain reading of the rules does.
func TestIndexAgreesWithThePlainRules(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "ab", "abc", "b", "*"})
	rapid.Check(t, func(t *rapid.T) {
		all := map[Resource][]Entry{}
		for range rapid.IntRange(0, 8).Draw(t, "acls") {
			r := on(topicT, names.Draw(t, "on"), rapid.SampledFrom([]kmsg.ACLResourcePatternType{literal, prefixed}).Draw(t, "pattern"))
			all[r] = append(all[r], Entry{
				rapid.SampledFrom([]string{"User:a", "User:b", "User:*"}).Draw(t, "who"), rapid.SampledFrom([]string{"*", "h"}).Draw(t, "host"),
				rapid.SampledFrom([]kmsg.ACLOperation{opAll, opRead, opWrite, opDesc}).Draw(t, "op"), rapid.SampledFrom([]kmsg.ACLPermissionType{allow, deny}).Draw(t, "perm"),
			})
		}
		x := newACLIndex(nil)
		for r, e := range all {
			x = x.with(r, e)
		}
		for _, name := range []string{"a", "ab", "abcd", "c"} {
			for _, op := range []kmsg.ACLOperation{opRead, opWrite, opDesc} {
				var want verdict
				f := Filter{Type: topicT, Name: &name, Pattern: kmsg.ACLResourcePatternTypeMatch, Operation: kmsg.ACLOperationAny, Permission: kmsg.ACLPermissionTypeAny}
				for r, entries := range all {
					if !f.matchesResource(r) {
						continue
					}
					want.found = true
					for _, e := range entries {
						if (e.Principal != "User:a" && e.Principal != WildcardUser) || (e.Host != "*" && e.Host != "h2") {
							continue
						}
						if e.Permission == deny && (e.Operation == op || e.Operation == opAll) {
							want.deny = true
						}
						if e.Permission == allow && implies(e.Operation, op) {
							want.allow = true
						}
					}
				}
				if got := x.decide("User:a", "h2", op, topicT, name); got != want {
					t.Fatalf("%q %v: %+v, want %+v", name, op, got, want)
				}
			}
		}
	})
}

func BenchmarkAuthorize(b *testing.B) {
	a := newAuthorizer(b, newFakeZK())
	var list []Binding
	for i := range 1000 {
		list = append(list, acl(on(topicT, "orders", literal), fmt.Sprintf("User:%d", i), "*", opRead, allow))
	}
	create(b, a, list...)
	b.ReportAllocs()
	for b.Loop() {
		a.Authorize("User:500", "10.0.0.1", opRead, topicT, "orders")
	}
}
