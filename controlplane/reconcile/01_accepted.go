package reconcile

import (
	"context"
	"time"

	"penstock/controlplane/cluster"
)

// accepted: the API has written the wish. The work begins.
func (p *pass) accepted(ctx context.Context) (time.Duration, error) {
	if err := p.c.Worker.Step(ctx, p.Claim, "placing brokers", 5); err != nil {
		return 0, err
	}
	return 0, p.moveTo(ctx, cluster.Provisioning)
}
