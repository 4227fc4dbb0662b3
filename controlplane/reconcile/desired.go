package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/controlplane/brokeradmin"
	"penstock/controlplane/cluster"
)

// object is one desired thing inside a cluster and what to do about it.
type object struct {
	what string
	cluster.Applied
	apply   func(ctx context.Context, a Admin) error // brings it about and notes that
	remove  func(ctx context.Context, a Admin) error // takes it away and notes that
	problem func(ctx context.Context, pr cluster.Problem) error
}

// pending says whether something is to be done. A wish that can never be met
// waits for another one.
func (o *object) pending() bool {
	if o.DeletionRequestedAt != nil {
		return true
	}
	return o.AppliedGeneration != o.Generation && (o.Problem == nil || o.Problem.Retryable)
}

// applyDesired brings topics, quotas and access rules to the wish. What fails
// is noted at the object and holds up nothing else; again says when to try once
// more, 0 if nothing is left to try.
func (p *pass) applyDesired(ctx context.Context) (again time.Duration, err error) {
	d, err := p.c.Worker.Desired(ctx, &p.Cluster)
	if err != nil {
		return 0, fmt.Errorf("read what is wanted: %w", err)
	}
	for _, o := range p.objects(d) {
		if !o.pending() {
			continue
		}
		// The fence, before an effect on brokers, which know no terms.
		if err := p.c.Worker.Check(ctx, p.Claim); err != nil {
			return 0, err
		}
		a, err := p.open()
		if err != nil {
			return 0, err
		}
		do := o.apply
		if o.DeletionRequestedAt != nil {
			do = o.remove
		}
		err = do(ctx, a)
		switch {
		case err == nil:
		case ctx.Err() != nil, errors.Is(err, cluster.ErrFenced), errors.Is(err, errFault):
			return 0, err
		default:
			pr := cluster.Problem{Type: "urn:penstock:not-applied", Title: "The brokers do not have it yet", Detail: visible(err), Retryable: true}
			if brokeradmin.Permanent(err) {
				pr = cluster.Problem{Type: "urn:penstock:refused", Title: "The brokers refuse it", Detail: visible(err)}
			} else {
				again = time.Second
			}
			p.c.Logger.Warn("not applied", "cluster", p.ID, "what", o.what, "err", err, "retryable", pr.Retryable)
			if err := o.problem(ctx, pr); err != nil {
				return 0, err
			}
		}
	}
	for _, id := range d.GoneAccounts {
		if err := p.c.Worker.AccountGone(ctx, p.Claim, id); err != nil {
			return 0, err
		}
	}
	return again, nil
}

// errFault is in the chain of the faults that tests inject.
var errFault = errors.New("injected fault")

// objects lists what is wanted, in the order in which it is done: what takes
// rights away comes first, what gives them last.
func (p *pass) objects(d cluster.Desired) []object {
	var removals, additions []object
	add := func(o object) {
		if o.DeletionRequestedAt != nil {
			removals = append(removals, o)
		} else {
			additions = append(additions, o)
		}
	}
	w := p.c.Worker
	for _, r := range d.Revocations {
		rev := brokeradmin.Revocation{Name: r.Name, At: r.NotBefore}
		o := object{
			what: "revocation of " + r.Name, Applied: r.Applied,
			apply: func(ctx context.Context, a Admin) error {
				return p.effect(a.EnsureRevoked(ctx, rev), "revocation applied", func() error { return w.RevocationApplied(ctx, p.Claim, r.Name, r.Generation) })
			},
			remove: func(ctx context.Context, a Admin) error {
				return p.effect(a.DropRevoked(ctx, rev), "revocation dropped", func() error { return w.RevocationGone(ctx, p.Claim, r.Name) })
			},
			problem: func(ctx context.Context, pr cluster.Problem) error {
				return w.RevocationProblem(ctx, p.Claim, r.Name, pr)
			},
		}
		if r.Over(p.c.now()) {
			o.DeletionRequestedAt = &r.NotBefore
		}
		removals = append(removals, o) // each takes something away
	}
	for _, t := range d.Topics {
		add(object{
			what: "topic " + t.Name, Applied: t.Applied,
			apply: func(ctx context.Context, a Admin) error {
				id, err := a.EnsureTopic(ctx, brokeradmin.Topic{Name: t.Name, Partitions: t.Partitions, Replication: t.ReplicationFactor, Configs: t.Configs})
				return p.effect(err, "topic applied", func() error { return w.TopicApplied(ctx, p.Claim, t.ID, t.Generation, id) })
			},
			remove: func(ctx context.Context, a Admin) error {
				return p.effect(a.DeleteTopic(ctx, t.Name), "topic deleted", func() error { return w.TopicGone(ctx, p.Claim, t.ID) })
			},
			problem: func(ctx context.Context, pr cluster.Problem) error { return w.TopicProblem(ctx, p.Claim, t.ID, pr) },
		})
	}
	for _, q := range d.Quotas {
		set := func(ctx context.Context, a Admin, q brokeradmin.Quota, user string) error {
			return a.SetQuota(ctx, user, q, p.Brokers)
		}
		add(object{
			what: "quota of " + q.ServiceAccountID, Applied: q.Applied,
			apply: func(ctx context.Context, a Admin) error {
				err := set(ctx, a, brokeradmin.Quota{BytesIn: q.BytesInPerSecond, BytesOut: q.BytesOutPerSecond, RequestPercentage: q.RequestPercentage}, q.ServiceAccountID)
				return p.effect(err, "quota applied", func() error { return w.QuotaApplied(ctx, p.Claim, q.ServiceAccountID, q.Generation) })
			},
			remove: func(ctx context.Context, a Admin) error {
				err := set(ctx, a, brokeradmin.Quota{}, q.ServiceAccountID)
				return p.effect(err, "quota deleted", func() error { return w.QuotaGone(ctx, p.Claim, q.ServiceAccountID) })
			},
			problem: func(ctx context.Context, pr cluster.Problem) error {
				return w.QuotaProblem(ctx, p.Claim, q.ServiceAccountID, pr)
			},
		})
	}
	wanted := map[brokeradmin.ACL]bool{}
	for _, r := range d.ACLs {
		if r.DeletionRequestedAt == nil {
			wanted[ruleOf(r)] = true
		}
	}
	for _, r := range d.ACLs {
		rule := ruleOf(r)
		add(object{
			what: "access rule " + r.ID, Applied: r.Applied,
			apply: func(ctx context.Context, a Admin) error {
				return p.effect(a.EnsureACL(ctx, rule), "rule applied", func() error { return w.ACLApplied(ctx, p.Claim, r.ID, r.Generation) })
			},
			remove: func(ctx context.Context, a Admin) error {
				// The brokers know rules by their content: another row may want the same.
				if wanted[rule] {
					return w.ACLGone(ctx, p.Claim, r.ID)
				}
				return p.effect(a.DeleteACL(ctx, rule), "rule deleted", func() error { return w.ACLGone(ctx, p.Claim, r.ID) })
			},
			problem: func(ctx context.Context, pr cluster.Problem) error { return w.ACLProblem(ctx, p.Claim, r.ID, pr) },
		})
	}
	return append(removals, additions...)
}

func ruleOf(r cluster.ACL) brokeradmin.ACL {
	return brokeradmin.ACL{
		User: r.ServiceAccountID, Host: r.Host, ResourceType: r.ResourceType, ResourceName: r.ResourceName,
		PatternType: r.PatternType, Operation: r.Operation, Permission: r.Permission,
	}
}

// effect notes an effect on the brokers that went well.
func (p *pass) effect(err error, what string, note func() error) error {
	if err != nil {
		return err
	}
	if err := p.did(what); err != nil {
		return err
	}
	return note()
}
