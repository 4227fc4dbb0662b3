package main

import (
	"context"
	"log/slog"

	"penstock/controlplane/cluster"
	"penstock/tenants/registry"
)

// deps is what the reconcilers may use.
type deps struct {
	options
	DB     *registry.DB
	Sealer *registry.Sealer
	Hints  *cluster.Listener
	Log    *slog.Logger
}

// startReconcilers starts what brings desired state about; stop ends it and
// waits. ctx ends when the daemon is asked to stop.
func startReconcilers(ctx context.Context, d deps) (stop func(), err error) {
	return func() {}, nil
}
