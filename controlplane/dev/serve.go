package dev

import (
	"cmp"
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"time"

	"penstock/controlplane/provision"
)

// serve writes dev.json, says that all is ready, and keeps dev.json current
// until the context ends. watch is called now and then.
func (s *Service) serve(ctx context.Context, ready func(), watch func()) error {
	last := s.info()
	if s.o.Background {
		ready()
	}
	if err := writeJSON(s.f.path(devFile), last); err != nil {
		return err
	}
	if !s.o.Background {
		ready()
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		watch()
		if now := s.info(); !reflect.DeepEqual(now, last) {
			if err := writeJSON(s.f.path(devFile), now); err != nil {
				s.say("cannot write dev.json: %v", err)
				continue
			}
			last = now
		}
	}
}

// info is dev.json as of now.
func (s *Service) info() *Info {
	in := &Info{
		Version:   1,
		ZooKeeper: s.zk.addr(),
		PIDs:      PIDs{Dev: s.self.PID, ZooKeeper: s.zookeeper.pid()},
	}
	if s.o.Bare {
		in.Cluster = s.f.cluster(bareCluster, s.zk.addr())
		in.Cluster.ID = ""
		in.Cluster.SecurityProtocol = "PLAINTEXT"
		return in
	}
	d := s.state.Demo
	in.API = s.apiURL()
	in.TokenURL = in.API + "/oauth2/token"
	in.Postgres = s.pg.url(pgOwner, pgDatabase)
	in.PIDs.Control, in.PIDs.Postgres = s.control.pid(), s.postgres.pid()
	in.Operator = &s.state.Operator
	in.Tenant = &InfoTenant{ID: d.TenantID, Name: d.TenantName, credential: d.Tenant}
	in.Cluster = s.f.cluster(d.ClusterID, s.zk.addr()+provision.Chroot(d.ClusterID))
	in.Cluster.SecurityProtocol = "SASL_PLAINTEXT"
	in.ServiceAccount = &d.Account
	return in
}

// cluster tells from the brokers' folders alone what of the cluster is there.
func (f folder) cluster(id, zooKeeper string) *InfoCluster {
	c := &InfoCluster{ID: id, ZooKeeperConnect: zooKeeper, Brokers: []InfoBroker{}}
	dirs, _ := filepath.Glob(f.path(brokersDir, id, "*", "launch.json"))
	for _, file := range dirs {
		dir := filepath.Dir(file)
		n, err := strconv.ParseInt(filepath.Base(dir), 10, 32)
		if err != nil {
			continue
		}
		st, err := provision.Look(dir)
		if err != nil || st.State == provision.Absent {
			continue
		}
		c.Brokers = append(c.Brokers, InfoBroker{ID: int32(n), PID: st.Broker.PID, Addr: st.ClientAddr, Dir: dir, LogDirs: st.LogDirs})
	}
	slices.SortFunc(c.Brokers, func(a, b InfoBroker) int { return cmp.Compare(a.ID, b.ID) })
	var addrs []string
	for _, b := range c.Brokers {
		addrs = append(addrs, b.Addr)
	}
	c.Bootstrap = join(addrs)
	return c
}
