package dev

import (
	"context"
	"time"

	"penstock/controlplane/client"
)

// The demonstration: what a tenant does with the service, from nothing, through
// the public API and a stock Kafka client alone, with every claim checked. A
// second run on an old state finds what the first one made and checks that its
// events are still there.

// demo is one run of the demonstration.
type demo struct {
	s  *Service
	st *demoState
	r  *reporter
	// run names this run's groups, loadIn and loadOut are its topics for step 3.
	run, loadIn, loadOut string

	operator, tenant *client.Client
	bootstrap        []string
	counts           map[string]*counter // by client id of the service account
	before           map[usageKey]int64  // usage at the start of the run
}

// Topics of the demonstration.
const (
	eventsTopic   = "earthquakes"
	loadTopic     = "demo-load-" // and the direction, and the run
	pingTopic     = "demo-ping"
	failoverTopic = "demo-failover"

	partitions = 6
)

// save keeps what has been made so far.
func (d *demo) save() error { return d.s.f.save(d.s.state) }

func (s *Service) demonstrate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	d := &demo{
		s: s, st: &s.state.Demo, r: newReporter(s.o.Out, s.o.Terminal), run: time.Now().UTC().Format("20060102-150405"),
		counts: map[string]*counter{},
		operator: client.New(client.Config{BaseURL: s.apiURL(), ClientID: s.state.Operator.ClientID,
			ClientSecret: s.state.Operator.ClientSecret, UserAgent: "penstock-dev"}),
	}
	defer d.operator.Close()
	for _, part := range []struct {
		head string
		do   func(context.Context) error
	}{
		{"1. A tenant, its cluster, and what is in it", d.setUp},
		{"2. Real events, in and out", d.events},
		{"3. Quotas", d.quotas},
		{"4. A broker is killed", d.failover},
		{"5. Rewinding", d.rewind},
		{"6. Usage", d.usage},
	} {
		d.r.head(part.head)
		if err := part.do(ctx); err != nil {
			return err
		}
	}
	d.r.table()
	if !s.o.Once { // nobody can connect to what stops now
		s.howToConnect(join(d.bootstrap))
	}
	if d.tenant != nil {
		d.tenant.Close()
	}
	return nil
}
