package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Store keeps ACLs durably for all brokers of the cluster.
type Store interface {
	// Load returns every resource's entries.
	Load(ctx context.Context) (map[Resource][]Entry, error)
	// Get returns one resource's entries, none if it has no ACL.
	Get(ctx context.Context, r Resource) ([]Entry, error)
	// Add adds entries to a resource, keeping those that others add at the same
	// time, and tells all brokers. Entries that are there stay single.
	Add(ctx context.Context, r Resource, entries []Entry) error
	// Delete removes entries from a resource in the same way.
	Delete(ctx context.Context, r Resource, entries []Entry) error
}

// AuthorizerConfig is the settings of an Authorizer.
type AuthorizerConfig struct {
	Store                Store
	SuperUsers           []string // "User:x"
	AllowEveryoneIfNoACL bool     // allow.everyone.if.no.acl.found
	// Reload is the time between reads of all ACLs, which heal a lost
	// notification; 5 min, negative is never.
	Reload time.Duration
	Logger *slog.Logger
}

// Authorizer decides by ACLs. A nil *Authorizer allows everything: no
// authorizer is configured.
type Authorizer struct {
	cfg   AuthorizerConfig
	super map[string]bool
	index atomic.Pointer[aclIndex]
	log   *slog.Logger

	mu     sync.Mutex // serialises changes of index
	cancel context.CancelFunc
	done   chan struct{}
}

// ErrSecurityDisabled is the error of the ACL APIs without an authorizer.
var ErrSecurityDisabled = kerr.SecurityDisabled

// OpenAuthorizer reads all ACLs.
func OpenAuthorizer(ctx context.Context, cfg AuthorizerConfig) (*Authorizer, error) {
	if cfg.Reload == 0 {
		cfg.Reload = 5 * time.Minute
	}
	a := &Authorizer{cfg: cfg, super: make(map[string]bool), log: cfg.Logger, done: make(chan struct{})}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	for _, u := range cfg.SuperUsers {
		a.super[u] = true
	}
	a.index.Store(newACLIndex(nil))
	if err := a.Reload(ctx); err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	go a.reloadLoop(run)
	return a, nil
}

// Close ends the background reading.
func (a *Authorizer) Close() {
	a.cancel()
	<-a.done
}

func (a *Authorizer) reloadLoop(ctx context.Context) {
	defer close(a.done)
	if a.cfg.Reload < 0 {
		return
	}
	t := time.NewTicker(a.cfg.Reload)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if err := a.Reload(ctx); err != nil && ctx.Err() == nil {
				a.log.Warn("reading all ACLs failed", "err", err)
			}
		}
	}
}

// Reload reads all ACLs anew; call it after a new ZooKeeper session.
func (a *Authorizer) Reload(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	all, err := a.cfg.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("auth: read ACLs: %w", err)
	}
	a.index.Store(newACLIndex(all))
	return nil
}

// Refresh reads one resource's ACLs anew; call it on a change notification.
func (a *Authorizer) Refresh(ctx context.Context, r Resource) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refresh(ctx, r)
}

func (a *Authorizer) refresh(ctx context.Context, r Resource) error {
	entries, err := a.cfg.Store.Get(ctx, r)
	if err != nil {
		return fmt.Errorf("auth: read ACLs of %q: %w", r.Name, err)
	}
	a.index.Store(a.index.Load().with(r, entries))
	return nil
}

// Authorize says whether principal ("User:x") from host (an address without
// port) may do op on the resource of that type and name. It neither locks nor
// allocates.
func (a *Authorizer) Authorize(principal, host string, op kmsg.ACLOperation, typ kmsg.ACLResourceType, name string) bool {
	if a == nil || a.super[principal] {
		return true
	}
	v := a.index.Load().decide(principal, host, op, typ, name)
	if !v.found {
		return a.cfg.AllowEveryoneIfNoACL
	}
	return v.allow && !v.deny
}

// AuthorizeAny says whether op is allowed on at least one possible resource of
// the type (KIP-679: idempotent producers need Write on any topic).
func (a *Authorizer) AuthorizeAny(principal, host string, op kmsg.ACLOperation, typ kmsg.ACLResourceType) bool {
	if a == nil || a.super[principal] {
		return true
	}
	allowed, denied := a.index.Load().anyAllowed(principal, host, op, typ)
	return allowed || (!denied && a.cfg.AllowEveryoneIfNoACL)
}

// Operations is the set of operations that the principal may do on a resource,
// as the bit field of Metadata and DescribeCluster (KIP-430): bit n is the
// operation of value n.
func (a *Authorizer) Operations(principal, host string, typ kmsg.ACLResourceType, name string) int32 {
	var bits int32
	for _, op := range operationsOf[typ] {
		if a.Authorize(principal, host, op, typ, name) {
			bits |= 1 << uint(op)
		}
	}
	return bits
}

var operationsOf = map[kmsg.ACLResourceType][]kmsg.ACLOperation{
	kmsg.ACLResourceTypeTopic: {kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate, kmsg.ACLOperationDelete,
		kmsg.ACLOperationAlter, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs},
	kmsg.ACLResourceTypeGroup: {kmsg.ACLOperationRead, kmsg.ACLOperationDelete, kmsg.ACLOperationDescribe,
		kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs},
	kmsg.ACLResourceTypeCluster: {kmsg.ACLOperationCreate, kmsg.ACLOperationAlter, kmsg.ACLOperationDescribe, kmsg.ACLOperationClusterAction,
		kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs, kmsg.ACLOperationIdempotentWrite},
	kmsg.ACLResourceTypeTransactionalId: {kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe},
}

// Describe lists the bindings that a filter selects, in a fixed order.
func (a *Authorizer) Describe(f Filter) ([]Binding, error) {
	if a == nil {
		return nil, fmt.Errorf("%w: no authorizer is configured", ErrSecurityDisabled)
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	return a.index.Load().find(&f), nil
}

func (x *aclIndex) find(f *Filter) []Binding {
	var out []Binding
	for r, acl := range x.byResource {
		if !f.matchesResource(r) {
			continue
		}
		for _, e := range acl.all {
			if b := (Binding{r, e}); f.Matches(b) {
				out = append(out, b)
			}
		}
	}
	slices.SortFunc(out, compareBindings)
	return out
}

func compareBindings(a, b Binding) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Pattern, b.Pattern), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Principal, b.Principal),
		cmp.Compare(a.Host, b.Host), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Permission, b.Permission))
}

// Create stores bindings; the result has one error (or nil) for each. What is
// stored holds on this broker when Create returns, on others soon after.
func (a *Authorizer) Create(ctx context.Context, bindings []Binding) []error {
	errs := make([]error, len(bindings))
	if a == nil {
		for i := range errs {
			errs[i] = fmt.Errorf("%w: no authorizer is configured", ErrSecurityDisabled)
		}
		return errs
	}
	groups := make(map[Resource][]int)
	for i := range bindings {
		if errs[i] = bindings[i].Check(); errs[i] == nil {
			groups[bindings[i].Resource] = append(groups[bindings[i].Resource], i)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for r, idx := range groups {
		entries := make([]Entry, 0, len(idx))
		for _, i := range idx {
			entries = append(entries, bindings[i].Entry)
		}
		err := a.cfg.Store.Add(ctx, r, entries)
		// Read back also after an error: the write may have gone through.
		err = errors.Join(err, a.refresh(ctx, r))
		for _, i := range idx {
			errs[i] = err
		}
	}
	return errs
}

// Deleted is what became of one filter of Delete.
type Deleted struct {
	Err     error // of the filter as a whole
	Matched []DeletedBinding
}

// DeletedBinding is one binding that a filter selected; Err says that it is
// still there.
type DeletedBinding struct {
	Binding
	Err error
}

// Delete removes the bindings that each filter selects. A binding that several
// filters select is reported for the first.
func (a *Authorizer) Delete(ctx context.Context, filters []Filter) []Deleted {
	out := make([]Deleted, len(filters))
	if a == nil {
		for i := range out {
			out[i].Err = fmt.Errorf("%w: no authorizer is configured", ErrSecurityDisabled)
		}
		return out
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.index.Load()
	taken := make(map[Binding]bool)
	groups := make(map[Resource][]Entry)
	for i := range filters {
		if out[i].Err = filters[i].Check(); out[i].Err != nil {
			continue
		}
		for _, b := range x.find(&filters[i]) {
			if !taken[b] {
				taken[b] = true
				out[i].Matched = append(out[i].Matched, DeletedBinding{Binding: b})
				groups[b.Resource] = append(groups[b.Resource], b.Entry)
			}
		}
	}
	failed := make(map[Resource]error)
	for r, entries := range groups {
		err := a.cfg.Store.Delete(ctx, r, entries)
		if err = errors.Join(err, a.refresh(ctx, r)); err != nil {
			failed[r] = err
		}
	}
	for i := range out {
		for j := range out[i].Matched {
			out[i].Matched[j].Err = failed[out[i].Matched[j].Resource]
		}
	}
	return out
}
