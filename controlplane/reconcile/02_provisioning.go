package reconcile

import (
	"context"
	"fmt"
	"time"

	"penstock/controlplane/cluster"
)

// patience is how long brokers may take to find each other before that shows as
// a problem; it is tried on all the same.
const patience = time.Minute

// provisioning: place, secrets and ports, then processes, then wait until all
// brokers are registered and have a controller, then what is wanted inside, then
// ready. Each part is found done when it was done before.
func (p *pass) provisioning(ctx context.Context) (time.Duration, error) {
	if err := p.c.Worker.Step(ctx, p.Claim, "starting brokers", 20); err != nil {
		return 0, err
	}
	all, err := p.ensureBrokers(ctx)
	if err != nil {
		return 0, err
	}
	if err := p.c.Worker.Step(ctx, p.Claim, "waiting for brokers to find each other", 60); err != nil {
		return 0, err
	}
	if waiting := p.registered(ctx, all); waiting != nil {
		if time.Since(p.CreatedAt) > patience {
			return 0, waiting
		}
		return p.c.Soon, nil
	}
	if err := p.c.Worker.Step(ctx, p.Claim, "applying topics, quotas and access rules", 80); err != nil {
		return 0, err
	}
	if _, err := p.applyDesired(ctx); err != nil {
		return 0, err
	}
	return 0, p.moveTo(ctx, cluster.Ready)
}

// registered says what is missing until the cluster serves, nil if nothing is.
func (p *pass) registered(ctx context.Context, all bool) error {
	if !all {
		return fmt.Errorf("not all of %d brokers run", p.Brokers)
	}
	a, err := p.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	h, err := a.Health(ctx)
	if err != nil {
		return fmt.Errorf("brokers do not answer: %w", err)
	}
	if len(h.Brokers) < p.Brokers || h.Controller < 0 {
		return fmt.Errorf("%d of %d brokers are registered, controller %d", len(h.Brokers), p.Brokers, h.Controller)
	}
	return nil
}
