package dev

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"penstock/controlplane/provision"
	"penstock/internal/ports"
	"penstock/internal/process"
)

const (
	bareCluster     = "bare" // its name in the engine
	defaultBarePort = 9092
)

func (s *Service) engine() (*provision.Process, error) {
	return provision.NewProcess(provision.ProcessConfig{
		Dir: s.f.path(brokersDir), Binary: s.binary("penstock-broker"),
		Lifeline: process.Self(), NoRestart: s.o.NoRestart,
	})
}

func (s *Service) runBare(ctx context.Context) error {
	e, err := s.engine()
	if err != nil {
		return err
	}
	defer e.Close()
	if err := s.startZooKeeper(); err != nil {
		return err
	}
	if err := awaitPart(ctx, s.zookeeper, s.zk.ready); err != nil {
		return err
	}
	specs, err := s.bareSpecs(ctx, e)
	if err != nil {
		return err
	}
	addrs := make([]string, len(specs))
	for i, spec := range specs {
		st, err := e.Ensure(ctx, spec)
		if err != nil {
			return fmt.Errorf("broker %d: %w", spec.BrokerID, err)
		}
		addrs[i] = st.ClientAddr
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i, addr := range addrs {
		err := until(bounded, "broker "+strconv.Itoa(i), func(context.Context) error { return brokerAnswers(addr) })
		if err != nil {
			return fmt.Errorf("%w; see %s", err, s.f.path(brokersDir, bareCluster, strconv.Itoa(i), "broker.log"))
		}
	}
	// Supervisors keep the brokers; who keeps the supervisors is this.
	watch := func() {
		for _, spec := range specs {
			if st, err := e.Status(ctx, spec.Ref); err != nil || st.State != provision.Halted || s.o.NoRestart {
				continue
			}
			if _, err := e.Ensure(ctx, spec); err != nil && ctx.Err() == nil {
				s.say("broker %d: %v", spec.BrokerID, err)
			}
		}
	}
	return s.serve(ctx, func() { s.say("%s", join(addrs)) }, watch)
}

// bareSpecs settles the ports: those asked for; else those of the earlier start,
// or 9092 and following, or any that are free.
func (s *Service) bareSpecs(ctx context.Context, e *provision.Process) ([]provision.BrokerSpec, error) {
	first := s.o.Port
	kept, err := e.Status(ctx, provision.Ref{ClusterID: bareCluster})
	if err != nil {
		return nil, err
	}
	if first == 0 && kept.State == provision.Absent {
		first = defaultBarePort
	}
	specs := make([]provision.BrokerSpec, s.o.Brokers)
	for i := range specs {
		specs[i] = provision.BrokerSpec{
			Ref:     provision.Ref{ClusterID: bareCluster, BrokerID: int32(i)},
			Brokers: s.o.Brokers, ZooKeeper: s.zk.addr(), Set: s.o.Set,
		}
		if first != 0 {
			specs[i].Port = first + i
		}
	}
	for i := range specs {
		_, err := e.Reserve(ctx, specs[i])
		if errors.Is(err, ports.ErrTaken) && s.o.Port == 0 {
			// Not asked for, so any will do; and then for all, rather than a row with
			// a hole.
			for j := range specs {
				specs[j].Port = 0
			}
			_, err = e.Reserve(ctx, specs[i])
		}
		if err != nil {
			return nil, fmt.Errorf("broker %d: %w", i, err)
		}
	}
	return specs, nil
}
