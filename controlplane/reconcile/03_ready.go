package reconcile

import (
	"context"
	"time"

	"penstock/controlplane/cluster"
)

// ready: the cluster serves. Brokers whose supervisor is gone are started again,
// endpoints follow, and what is wanted inside is applied.
func (p *pass) ready(ctx context.Context) (time.Duration, error) {
	if _, err := p.ensureBrokers(ctx); err != nil {
		return 0, err
	}
	again, err := p.applyDesired(ctx)
	if err != nil {
		return 0, err
	}
	if again == 0 {
		again = p.c.Steady
	}
	return again, nil
}

// updating: as provisioning, from brokers that are there already.
func (p *pass) updating(ctx context.Context) (time.Duration, error) {
	all, err := p.ensureBrokers(ctx)
	if err != nil {
		return 0, err
	}
	if p.registered(ctx, all) != nil {
		return p.c.Soon, nil
	}
	return 0, p.moveTo(ctx, cluster.Ready)
}
