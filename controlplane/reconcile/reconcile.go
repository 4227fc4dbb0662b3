// Package reconcile brings clusters from where they are to where they are
// wanted: one file a state, small idempotent steps.
//
// It is level triggered. A pass claims a cluster that is due, looks at desired
// and real state, does what is missing, and says when to look again; it does not
// matter why it was woken or how far an earlier pass came. A pass may be killed
// after any side effect: names, ports and secrets are kept before they are used,
// so the next pass finds what the last one left.
//
// A claim gives the right to work, not the right to write: every write to
// Postgres carries the claim's term and fails once another reconciler has
// claimed the cluster (cluster.ErrFenced), and side effects elsewhere check the
// claim first and are such that two at the same time do no harm.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"penstock/controlplane/brokeradmin"
	"penstock/controlplane/cluster"
	"penstock/controlplane/placement"
	"penstock/controlplane/provision"
)

// Admin changes a running cluster; *brokeradmin.Admin is the real one.
type Admin interface {
	Health(ctx context.Context) (brokeradmin.Health, error)
	EnsureTopic(ctx context.Context, t brokeradmin.Topic) (id string, err error)
	DeleteTopic(ctx context.Context, name string) error
	SetQuota(ctx context.Context, user string, q brokeradmin.Quota, brokers int) error
	EnsureACL(ctx context.Context, r brokeradmin.ACL) error
	DeleteACL(ctx context.Context, r brokeradmin.ACL) error
	EnsureRevoked(ctx context.Context, r brokeradmin.Revocation) error
	DropRevoked(ctx context.Context, r brokeradmin.Revocation) error
	Close()
}

// Sealer keeps secrets unreadable in Postgres.
type Sealer interface {
	Seal(plain []byte, purpose string) []byte
	Open(sealed []byte, purpose string) ([]byte, error)
}

// Config is what a Reconciler needs. All without a default must be set.
type Config struct {
	Worker *cluster.Worker
	Engine provision.Engine
	Sealer Sealer
	// Admin opens a client of a cluster, default brokeradmin.Open.
	Admin func(brokeradmin.Config) (Admin, error)
	// RemoveChroot clears what a cluster kept in ZooKeeper, default
	// provision.RemoveChroot.
	RemoveChroot func(ctx context.Context, zooKeeper, chroot string, s provision.Secrets) error
	// ZooKeeper is host:port,... of the ensemble, Issuer and JWKSURL are for the
	// brokers' check of tokens.
	ZooKeeper, Issuer, JWKSURL string
	// Set holds more lines for every broker's server.properties; they win.
	Set []provision.Property
	// Hosts are where brokers may stand, default this machine.
	Hosts []placement.Host
	// Wake, if set, wakes the loop early.
	Wake <-chan struct{}
	// Poll is how often the loop looks for due clusters, default 500 ms. Steady
	// is how often a ready cluster is looked at, default 2 s. Soon is the pause
	// while something is awaited, default 100 ms. Lease must be the worker's; a
	// claim is renewed after a third of it, default 6 s.
	Poll, Steady, Soon, Lease time.Duration
	// Parallel is how many clusters are worked on at once, default 4.
	Parallel int
	Logger   *slog.Logger

	// fault, in tests, is called after each side effect.
	fault func(after string) error
	now   func() time.Time // tests may be ahead
}

// Reconciler works on all clusters that are due.
type Reconciler struct{ c Config }

// New makes a Reconciler.
func New(c Config) *Reconciler {
	if c.Admin == nil {
		c.Admin = func(a brokeradmin.Config) (Admin, error) { return brokeradmin.Open(a) }
	}
	if c.RemoveChroot == nil {
		c.RemoveChroot = provision.RemoveChroot
	}
	if c.Hosts == nil {
		// What one machine can hold is the operator's to know; plans bound it.
		c.Hosts = []placement.Host{{Name: "127.0.0.1", Capacity: 1 << 20}}
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Poll, 500*time.Millisecond)
	def(&c.Steady, 2*time.Second)
	def(&c.Soon, 100*time.Millisecond)
	def(&c.Lease, 6*time.Second)
	if c.Parallel == 0 {
		c.Parallel = 4
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.fault == nil {
		c.fault = func(string) error { return nil }
	}
	if c.now == nil {
		c.now = time.Now
	}
	return &Reconciler{c: c}
}

// Run works until the context ends, and returns when all passes have ended.
func (r *Reconciler) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, r.c.Parallel)
	freed := make(chan struct{}, 1)
	tick := time.NewTicker(r.c.Poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		if free := r.c.Parallel - len(slots); free > 0 {
			claims, err := r.c.Worker.Claim(ctx, free)
			if err != nil && ctx.Err() == nil {
				r.c.Logger.Error("cannot claim clusters", "err", err)
			}
			for _, c := range claims {
				slots <- struct{}{}
				wg.Go(func() {
					r.pass(ctx, c)
					<-slots
					// A pass that has ended may leave its cluster due at once.
					select {
					case freed <- struct{}{}:
					default:
					}
				})
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-freed:
		case <-r.c.Wake:
		}
	}
}

// pass is one look at one cluster.
type pass struct {
	*Reconciler
	*cluster.Claim
	secrets *provision.Secrets
	admin   Admin
}

// step does what one state asks for and says when to look again; 0 is at once.
type step func(p *pass, ctx context.Context) (again time.Duration, err error)

var steps = map[cluster.State]step{
	cluster.Accepted:     (*pass).accepted,
	cluster.Provisioning: (*pass).provisioning,
	cluster.Ready:        (*pass).ready,
	cluster.Updating:     (*pass).updating,
	cluster.Deleting:     (*pass).deleting,
}

// failure is an error that no repetition cures: the cluster fails with it.
type failure struct {
	problem cluster.Problem
	err     error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// pass works on a claimed cluster as long as its state moves on.
func (r *Reconciler) pass(ctx context.Context, c *cluster.Claim) {
	log := r.c.Logger.With("cluster", c.ID)
	ctx, stopRenewing := r.renew(ctx, c)
	defer stopRenewing()
	p := &pass{Reconciler: r, Claim: c}
	defer p.close()
	for {
		state := c.State
		do := steps[state]
		if do == nil { // deleted, failed: nothing to do
			p.end(ctx, log, r.c.Worker.Release(context.WithoutCancel(ctx), c, r.c.Steady))
			return
		}
		again, err := do(p, ctx)
		switch {
		case err == nil && c.State != state:
			log.Info("cluster moved", "from", state, "to", c.State)
			if c.State == cluster.Deleted {
				return
			}
		case err == nil:
			p.end(ctx, log, r.c.Worker.Release(context.WithoutCancel(ctx), c, again))
			return
		default:
			p.end(ctx, log, p.failed(ctx, log, err))
			return
		}
	}
}

// failed ends a pass that could not do its work.
func (p *pass) failed(ctx context.Context, log *slog.Logger, err error) error {
	// What is written now must be written though the daemon is being stopped.
	out := context.WithoutCancel(ctx)
	var f *failure
	switch {
	case errors.Is(err, cluster.ErrFenced), errors.Is(err, errFault):
		return err // not ours to write any more; after a crash nothing would be written either
	case errors.Is(err, cluster.ErrStale), ctx.Err() != nil:
		return p.c.Worker.Release(out, p.Claim, 0)
	case errors.As(err, &f) && cluster.CanMove(p.State, cluster.Failed):
		log.Error("cluster has failed", "state", p.State, "err", err)
		if err := p.c.Worker.Move(out, p.Claim, cluster.Failed, &f.problem); err != nil {
			return err
		}
		return nil
	}
	pause := backoff(p.Attempts)
	log.Warn("reconcile", "state", p.State, "attempt", p.Attempts+1, "err", err, "again_in", pause)
	problem := cluster.Problem{Type: "urn:penstock:reconcile", Title: "A step towards the wished state failed", Detail: visible(err), Retryable: true}
	return p.c.Worker.Fail(out, p.Claim, problem, pause)
}

// end logs why a claim could not be given back; it ends by itself then.
func (p *pass) end(_ context.Context, log *slog.Logger, err error) {
	switch {
	case err == nil:
	case errors.Is(err, cluster.ErrFenced):
		log.Info("another reconciler has taken over")
	default:
		log.Warn("cannot give the cluster back", "err", err)
	}
}

// backoff grows from a quarter second to half a minute, with jitter, so that
// what failed together is not tried together.
func backoff(attempts int) time.Duration {
	d := 250 * time.Millisecond << min(attempts, 7)
	return time.Duration(float64(min(d, 30*time.Second)) * (0.75 + rand.Float64()/2))
}

// visible is what of an error a tenant may read: its last line, without the
// folders of this machine.
func visible(err error) string {
	words := strings.Fields(err.Error())
	for i, w := range words {
		if strings.HasPrefix(w, "/") {
			words[i] = "…"
		}
	}
	return strings.Join(words, " ")
}

// renew keeps the claim while the pass works; the context it returns ends when
// the claim is lost.
func (r *Reconciler) renew(ctx context.Context, c *cluster.Claim) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(r.c.Lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				// Any other error may pass; the lease has time for another try.
				if err := r.c.Worker.Renew(ctx, c); errors.Is(err, cluster.ErrFenced) {
					cancel(err)
					return
				}
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// did is called after each side effect.
func (p *pass) did(what string) error { return p.c.fault(what) }

// moveTo brings the cluster into another state.
func (p *pass) moveTo(ctx context.Context, to cluster.State) error {
	if err := p.c.Worker.Move(ctx, p.Claim, to, nil); err != nil {
		return fmt.Errorf("move to %s: %w", to, err)
	}
	return p.did("moved to " + string(to))
}

func (p *pass) close() {
	if p.admin != nil {
		p.admin.Close()
	}
}
