package dev

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"penstock/internal/process"
)

// apiURL is also the issuer of tokens, so it stays with its port.
func (s *Service) apiURL() string { return "http://" + loopback(s.state.Ports.API) }

func (s *Service) runWhole(ctx context.Context) error {
	started := time.Now()
	if err := s.startZooKeeper(); err != nil {
		return err
	}
	var zkErr, pgErr error
	var wg sync.WaitGroup
	wg.Go(func() { pgErr = s.startPostgres(ctx) })
	wg.Go(func() { zkErr = awaitPart(ctx, s.zookeeper, s.zk.ready) })
	wg.Wait()
	if err := errors.Join(pgErr, zkErr); err != nil {
		return err
	}
	if err := s.startControl(); err != nil {
		return err
	}
	if err := awaitPart(ctx, s.control, s.controlReady); err != nil {
		return err
	}
	s.say("PostgreSQL, ZooKeeper and the control plane are up after %.1f s: %s", time.Since(started).Seconds(), s.apiURL())
	if err := s.demonstrate(ctx); err != nil {
		return fmt.Errorf("demonstration: %w", err)
	}
	if s.o.Once {
		return nil
	}
	return s.serve(ctx, func() {
		s.say("Addresses and credentials are in %s as well.", s.f.path(devFile))
		if s.o.Background {
			s.say("Serving in the background. `%s` ends it.", s.stopCommand())
		} else {
			s.say("Serving. Ctrl-C ends it.")
		}
	}, func() {})
}

// stopCommand is what ends a service in the background, from any folder.
func (s *Service) stopCommand() string {
	return s.binary("penstock") + " dev stop --dir " + s.f.path()
}

func (s *Service) startPostgres(ctx context.Context) error {
	log, err := s.openLog("postgres")
	if err != nil {
		return err
	}
	if s.pg, err = newPostgres(s.state.Postgres, s.state.Ports.Postgres); err == nil {
		err = s.pg.init(ctx, log)
	}
	if err != nil {
		log.Close()
		return err
	}
	// SIGINT is PostgreSQL's fast shutdown: SIGTERM would wait for its clients.
	s.postgres = s.keep("PostgreSQL", log, syscall.SIGINT, func() (*process.Child, error) { return s.pg.start(log) })
	return awaitPart(ctx, s.postgres, s.pg.ready)
}

func (s *Service) startControl() error {
	log, err := s.openLog("control")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.f.path("control"), 0o700); err != nil {
		return err
	}
	operator := s.f.path("control", "operator.json")
	if err := writeJSON(operator, s.state.Operator); err != nil {
		return err
	}
	args := []string{
		"--listen", loopback(s.state.Ports.API),
		"--issuer", s.apiURL(),
		"--key-file", s.f.path("control", "key"),
		"--bootstrap-operator-file", operator,
		"--zookeeper", s.zk.addr(),
		"--engine", "process",
		"--engine-dir", s.f.path(brokersDir),
		"--broker-binary", s.binary("penstock-broker"),
		"--lifeline-pid", strconv.Itoa(s.self.PID),
	}
	if s.o.NoRestart {
		args = append(args, "--no-restart")
	}
	for _, p := range s.o.Set {
		args = append(args, "--broker-set", p.Key+"="+p.Value)
	}
	// The database's password stays out of the command line, which all may read.
	env := append(os.Environ(), "PENSTOCK_DATABASE_URL="+s.pg.url(pgOwner, pgDatabase))
	s.control = s.keep("control plane", log, syscall.SIGTERM, func() (*process.Child, error) {
		return process.Start(process.Spec{
			Path: s.binary("penstock-control"), Args: args, Env: env, Stdout: log, Stderr: log,
			Session: true, DeathSignal: syscall.SIGKILL,
		})
	})
	return nil
}

func (s *Service) controlReady(ctx context.Context) error {
	return until(ctx, "the control plane", func(ctx context.Context) error { return apiReady(ctx, s.apiURL()) })
}

// apiReady asks the control plane whether it serves.
func apiReady(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", res.Status)
	}
	return nil
}
