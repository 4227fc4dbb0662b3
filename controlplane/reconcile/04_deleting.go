package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	"penstock/controlplane/cluster"
	"penstock/controlplane/provision"
)

// deleting: the brokers with their data, then what they kept in ZooKeeper, then
// the rows. Gone already is done.
func (p *pass) deleting(ctx context.Context) (time.Duration, error) {
	rows, err := p.c.Worker.Brokers(ctx, &p.Cluster)
	if err != nil {
		return 0, fmt.Errorf("read brokers: %w", err)
	}
	if err := p.c.Worker.Check(ctx, p.Claim); err != nil {
		return 0, err
	}
	// All at once: brokers that wait for each other's leaders would only take
	// longer, and nobody needs them any more.
	var wg sync.WaitGroup
	errs := make([]error, len(rows))
	for i, row := range rows {
		wg.Go(func() { errs[i] = p.c.Engine.Remove(ctx, p.ref(row.ID)) })
	}
	// A broker that was reserved but has no row yet.
	for id := range int32(p.Brokers) {
		if int(id) >= len(rows) {
			if err := p.c.Engine.Remove(ctx, p.ref(id)); err != nil {
				errs = append(errs, err)
			}
		}
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, fmt.Errorf("remove brokers: %w", err)
		}
	}
	if err := p.did("removed"); err != nil {
		return 0, err
	}
	if p.SealedCredentials != nil {
		if err := p.ensureSecrets(ctx); err != nil {
			return 0, err
		}
		if err := p.c.RemoveChroot(ctx, p.c.ZooKeeper, provision.Chroot(p.ID), *p.secrets); err != nil {
			return 0, fmt.Errorf("clear the cluster's chroot: %w", err)
		}
		if err := p.did("chroot"); err != nil {
			return 0, err
		}
	}
	return 0, p.moveTo(ctx, cluster.Deleted)
}
