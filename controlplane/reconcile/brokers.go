package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/controlplane/brokeradmin"
	"penstock/controlplane/cluster"
	"penstock/controlplane/placement"
	"penstock/controlplane/provision"
)

// Purpose is what a cluster's secrets are sealed for.
func Purpose(clusterID string) string { return "cluster-credentials/" + clusterID }

// OpenSecrets opens the secrets of a cluster.
func OpenSecrets(s Sealer, c *cluster.Cluster) (provision.Secrets, error) {
	if c.SealedCredentials == nil {
		return provision.Secrets{}, errors.New("the cluster has no credentials yet")
	}
	plain, err := s.Open(c.SealedCredentials, Purpose(c.ID))
	if err != nil {
		return provision.Secrets{}, fmt.Errorf("open the cluster's credentials: %w", err)
	}
	return provision.DecodeSecrets(plain)
}

// ensureSecrets makes the cluster's secrets once; those stored first stand.
func (p *pass) ensureSecrets(ctx context.Context) error {
	if p.SealedCredentials == nil {
		sealed := p.c.Sealer.Seal(provision.NewSecrets(p.ID).Encode(), Purpose(p.ID))
		if _, err := p.c.Worker.SetCredentials(ctx, p.Claim, sealed); err != nil {
			return fmt.Errorf("store credentials: %w", err)
		}
		if err := p.did("secrets"); err != nil {
			return err
		}
	}
	s, err := OpenSecrets(p.c.Sealer, &p.Cluster)
	if err != nil {
		return err
	}
	p.secrets = &s
	return nil
}

func (p *pass) ref(id int32) provision.Ref { return provision.Ref{ClusterID: p.ID, BrokerID: id} }

func (p *pass) spec(id int32) provision.BrokerSpec {
	s := provision.BrokerSpec{
		Ref: p.ref(id), Brokers: p.Brokers,
		ZooKeeper: p.c.ZooKeeper, Chroot: provision.Chroot(p.ID),
		Security: &provision.Security{Issuer: p.c.Issuer, Audience: p.ID, JWKSURL: p.c.JWKSURL, Secrets: *p.secrets},
	}
	for k, v := range p.Config {
		s.Set = append(s.Set, provision.Property{Key: k, Value: v})
	}
	// A map has no order; equal wishes must give equal settings.
	slices.SortFunc(s.Set, func(a, b provision.Property) int { return strings.Compare(a.Key, b.Key) })
	s.Set = append(s.Set, p.c.Set...)
	return s
}

// plan makes sure that every broker of the cluster has a place, kept in
// Postgres, before any is started.
func (p *pass) plan(ctx context.Context) ([]cluster.Broker, error) {
	rows, err := p.c.Worker.Brokers(ctx, &p.Cluster)
	if err != nil {
		return nil, fmt.Errorf("read brokers: %w", err)
	}
	var have []placement.Broker
	for _, b := range rows {
		if b.State != cluster.BrokerRemoved {
			have = append(have, placement.Broker{ID: b.ID, Host: b.Host})
		}
	}
	placed, err := placement.Place(p.Brokers, have, p.c.Hosts)
	if err != nil {
		return nil, &failure{cluster.Problem{Type: "urn:penstock:no-room", Title: "There is no room for the brokers", Detail: err.Error()}, err}
	}
	if len(placed) == len(have) {
		return rows, nil
	}
	var fresh []cluster.Broker
	for _, b := range placed {
		if slices.ContainsFunc(have, func(h placement.Broker) bool { return h.ID == b.ID }) {
			continue
		}
		used, err := p.c.Worker.UsedPorts(ctx, b.Host)
		if err != nil {
			return nil, fmt.Errorf("read used ports: %w", err)
		}
		s := p.spec(b.ID)
		s.Avoid = used
		ep, err := p.c.Engine.Reserve(ctx, s)
		if err != nil {
			return nil, invalid(fmt.Errorf("reserve a place for broker %d: %w", b.ID, err))
		}
		if err := p.did("reserved"); err != nil {
			return nil, err
		}
		fresh = append(fresh, cluster.Broker{ID: b.ID, Host: ep.Host, ClientPort: ep.ClientPort, InternalPort: ep.InternalPort})
	}
	if err := p.c.Worker.PlanBrokers(ctx, p.Claim, fresh); err != nil {
		return nil, fmt.Errorf("plan brokers: %w", err)
	}
	if err := p.did("planned"); err != nil {
		return nil, err
	}
	if rows, err = p.c.Worker.Brokers(ctx, &p.Cluster); err != nil {
		return nil, fmt.Errorf("read brokers: %w", err)
	}
	return rows, nil
}

// invalid marks what the engine says can never work.
func invalid(err error) error {
	if errors.Is(err, provision.ErrInvalid) {
		return &failure{cluster.Problem{Type: "urn:penstock:invalid-cluster", Title: "The cluster cannot be made as it is wished", Detail: visible(err)}, err}
	}
	return err
}

// ensureBrokers makes the brokers as they are wanted, notes what the engine
// sees, and tells whether all of them run.
func (p *pass) ensureBrokers(ctx context.Context) (all bool, err error) {
	if err := p.ensureSecrets(ctx); err != nil {
		return false, err
	}
	rows, err := p.plan(ctx)
	if err != nil {
		return false, err
	}
	all = true
	var clients, internals []string
	for _, row := range rows {
		if row.State == cluster.BrokerRemoved || row.Desired != cluster.DesiredRunning {
			continue
		}
		// The fence: another reconciler may have taken over since the claim.
		if err := p.c.Worker.Check(ctx, p.Claim); err != nil {
			return false, err
		}
		st, err := p.c.Engine.Ensure(ctx, p.spec(row.ID))
		if err != nil {
			return false, invalid(fmt.Errorf("broker %d: %w", row.ID, err))
		}
		if err := p.did("ensured"); err != nil {
			return false, err
		}
		all = all && st.State == provision.Running
		clients, internals = append(clients, st.ClientAddr), append(internals, st.InternalAddr)
		if err := p.noteBroker(ctx, row, st); err != nil {
			return false, err
		}
	}
	zooKeeper := p.c.ZooKeeper + provision.Chroot(p.ID)
	client, internal := strings.Join(clients, ","), strings.Join(internals, ",")
	if p.Bootstrap != client || p.InternalBootstrap != internal || p.ZooKeeperConnect != zooKeeper {
		if err := p.c.Worker.SetEndpoints(ctx, p.Claim, client, internal, zooKeeper); err != nil {
			return false, fmt.Errorf("store endpoints: %w", err)
		}
		if err := p.did("endpoints"); err != nil {
			return false, err
		}
	}
	return all, nil
}

// noteBroker stores what the engine saw, if it differs from what is stored.
func (p *pass) noteBroker(ctx context.Context, row cluster.Broker, st provision.BrokerStatus) error {
	now := row
	now.ClientPort, now.InternalPort = port(st.ClientAddr), port(st.InternalAddr)
	now.State = brokerState(st.State)
	now.Status = cluster.BrokerStatus{PID: st.Broker.PID, Supervisor: st.Supervisor.PID, Dir: st.Dir, LogDir: strings.Join(st.LogDirs, ",")}
	if st.Broker.Start != 0 {
		now.Status.StartTime = strconv.FormatUint(st.Broker.Start, 10)
	}
	if st.Outdated {
		now.Status.Message = "runs with older settings until it is restarted"
	}
	if now == row {
		return nil
	}
	if err := p.c.Worker.SetBroker(ctx, p.Claim, now); err != nil {
		return fmt.Errorf("store broker %d: %w", row.ID, err)
	}
	return p.did("noted")
}

func brokerState(s provision.State) string {
	switch s {
	case provision.Running:
		return cluster.BrokerRunning
	case provision.Stopped:
		return cluster.BrokerStopped
	default:
		return cluster.BrokerStarting
	}
}

func port(addr string) int {
	_, p, _ := strings.Cut(addr, ":")
	n, _ := strconv.Atoi(p)
	return n
}

// open makes the admin client of the cluster.
func (p *pass) open() (Admin, error) {
	if p.admin == nil {
		a, err := p.c.Admin(brokeradmin.Config{
			Bootstrap: strings.Split(p.InternalBootstrap, ","), Password: p.secrets.ControlPassword, Settle: 15 * time.Second,
		})
		if err != nil {
			return nil, err
		}
		p.admin = a
	}
	return p.admin, nil
}
