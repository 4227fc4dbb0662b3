package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/billing/metering"
	"penstock/controlplane/brokeradmin"
	"penstock/controlplane/cluster"
	"penstock/controlplane/provision"
	"penstock/controlplane/reconcile"
	"penstock/controlplane/token"
	"penstock/internal/process"
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

// lease is how long a cluster stays with a reconciler that has died.
const lease = 6 * time.Second

// startReconcilers starts what brings desired state about, and the reading of
// usage; stop ends both and waits. ctx ends when the daemon is asked to stop.
// Without an engine's folder the daemon only serves the API: another replica
// does the work.
func startReconcilers(ctx context.Context, d deps) (stop func(), err error) {
	if d.EngineDir == "" {
		d.Log.Info("no --engine-dir: clusters are reconciled elsewhere")
		return func() {}, nil
	}
	if d.ZooKeeper == "" {
		return nil, errors.New("--zookeeper is needed to run brokers")
	}
	engine, err := openEngine(d)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	worker := cluster.NewWorker(d.DB.Worker(), fmt.Sprintf("control@%s:%d", host, os.Getpid()), lease)
	var set []provision.Property
	for _, s := range d.BrokerSettings {
		p, err := provision.ParseSet(s)
		if err != nil {
			return nil, err
		}
		set = append(set, p)
	}
	wake, unsubscribe := d.Hints.Subscribe()
	reconciler := reconcile.New(reconcile.Config{
		Worker: worker, Lease: lease, Engine: engine, Sealer: d.Sealer, Wake: wake, Set: set,
		ZooKeeper: d.ZooKeeper, Issuer: d.Issuer, JWKSURL: d.Issuer + token.JWKSPath, Logger: d.Log,
	})
	reader := metering.New(metering.Config{
		Pool: d.DB.Worker(), Clusters: worker.Serving, Logger: d.Log,
		Client: func(c cluster.Cluster) ([]kgo.Opt, error) {
			s, err := reconcile.OpenSecrets(d.Sealer, &c)
			if err != nil {
				return nil, err
			}
			return brokeradmin.Options(brokeradmin.Config{Bootstrap: strings.Split(c.InternalBootstrap, ","), Password: s.ControlPassword}), nil
		},
	})
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { reconciler.Run(ctx) })
	wg.Go(func() { reader.Run(ctx) })
	return func() {
		cancel()
		wg.Wait()
		unsubscribe()
		engine.Close()
	}, nil
}

func openEngine(d deps) (*provision.Process, error) {
	if d.Engine != "process" {
		return nil, fmt.Errorf("unknown --engine %q: want process", d.Engine)
	}
	c := provision.ProcessConfig{Dir: d.EngineDir, Binary: d.BrokerBinary, NoRestart: d.NoRestart, Logger: d.Log}
	if d.LifelinePID != 0 {
		var err error
		if c.Lifeline, err = process.Lookup(d.LifelinePID); err != nil {
			return nil, fmt.Errorf("--lifeline-pid %d: %w", d.LifelinePID, err)
		}
	}
	return provision.NewProcess(c)
}
