package dev

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/client"
)

const (
	tenantName  = "acme"
	clusterName = "seismic"
	planName    = "developer"
)

// Quotas of the whole cluster. The mover's are generous, the greedy one's are
// what step 3 measures.
var (
	moverQuota  = wire.PutQuota{BytesInPerSecond: ptr(int64(30_000_000)), BytesOutPerSecond: ptr(int64(60_000_000)), RequestPercentage: ptr(600.0)}
	greedyQuota = wire.PutQuota{BytesInPerSecond: ptr(int64(1_200_000)), BytesOutPerSecond: ptr(int64(1_500_000)), RequestPercentage: ptr(300.0)}
)

func ptr[T any](v T) *T { return &v }

// setUp makes the tenant and all that it has, or finds it.
func (d *demo) setUp(ctx context.Context) error {
	if err := d.r.do("tenant acme on plan "+planName+", and an account for its automation", func() (string, error) { return d.makeTenant(ctx) }); err != nil {
		return err
	}
	if err := d.r.do("cluster of 3 brokers", func() (string, error) { return d.makeCluster(ctx) }); err != nil {
		return err
	}
	if err := d.r.do(fmt.Sprintf("topic %s, %d partitions, replication 3, min.insync.replicas 2", eventsTopic, partitions), func() (string, error) {
		// The events are of 2018: by their own times they would be too old to keep.
		return "", d.makeTopic(ctx, eventsTopic, map[string]string{"min.insync.replicas": "2", "retention.ms": "-1"})
	}); err != nil {
		return err
	}
	if err := d.r.do("service accounts, their rights and quotas", func() (string, error) { return d.makeAccounts(ctx) }); err != nil {
		return err
	}
	return d.r.do("log in with a token, all replicas in sync", func() (string, error) { return d.awaitSync(ctx) })
}

func (d *demo) makeTenant(ctx context.Context) (string, error) {
	found := "made"
	if d.st.TenantID == "" {
		t, err := d.operator.CreateTenant(ctx, wire.CreateTenant{Name: tenantName, Plan: planName})
		if client.IsConflict(err) { // made by a run that was killed before it could note that
			var all []wire.Tenant
			if all, err = d.operator.Tenants(ctx); err == nil {
				i := slices.IndexFunc(all, func(t wire.Tenant) bool { return t.Name == tenantName })
				if i < 0 {
					return "", fmt.Errorf("tenant %s is there and is not", tenantName)
				}
				t = all[i]
			}
		}
		if err != nil {
			return "", err
		}
		d.st.TenantID, d.st.TenantName = t.ID, t.Name
		if err := d.save(); err != nil {
			return "", err
		}
	} else {
		found = "found"
	}
	if d.st.Tenant.ClientID == "" {
		// A name of its own: the secret of an account is shown once, so one that was
		// made and not noted is lost.
		a, err := d.operator.CreateAccount(ctx, d.st.TenantID, wire.CreateAccount{Name: "automation-" + d.run, Role: "admin"})
		if err != nil {
			return "", err
		}
		d.st.Tenant = credential{ClientID: a.Secret.ClientID, ClientSecret: a.Secret.ClientSecret}
		if err := d.save(); err != nil {
			return "", err
		}
	}
	d.tenant = client.New(client.Config{BaseURL: d.s.apiURL(), ClientID: d.st.Tenant.ClientID,
		ClientSecret: d.st.Tenant.ClientSecret, UserAgent: "penstock-dev"})
	return found + " " + d.st.TenantID, nil
}

func (d *demo) makeCluster(ctx context.Context) (string, error) {
	if d.st.ClusterID == "" {
		c, err := d.tenant.CreateCluster(ctx, wire.CreateCluster{Name: clusterName, Brokers: 3})
		id := c.Cluster.ID
		if client.IsConflict(err) {
			var all []wire.Cluster
			if all, err = d.tenant.Clusters(ctx); err == nil {
				i := slices.IndexFunc(all, func(c wire.Cluster) bool { return c.Name == clusterName })
				if i < 0 {
					return "", fmt.Errorf("cluster %s is there and is not", clusterName)
				}
				id = all[i].ID
			}
		}
		if err != nil {
			return "", err
		}
		d.st.ClusterID = id
		if err := d.save(); err != nil {
			return "", err
		}
	}
	if _, err := d.tenant.WaitCluster(ctx, d.st.ClusterID); err != nil {
		return "", err
	}
	// On an old state the cluster is ready in name; its brokers start anew, maybe
	// elsewhere.
	err := until(ctx, "the cluster", func(ctx context.Context) error {
		c, err := d.tenant.Cluster(ctx, d.st.ClusterID)
		if err != nil {
			return err
		}
		for _, b := range c.Status.Brokers {
			if b.State != "running" {
				return fmt.Errorf("broker %d is %s", b.ID, b.State)
			}
			if err := brokerAnswers(b.Address); err != nil {
				return err
			}
		}
		d.bootstrap = strings.Split(c.Bootstrap, ",")
		if len(d.bootstrap) != 3 {
			return fmt.Errorf("bootstrap is %q", c.Bootstrap)
		}
		return nil
	})
	return d.st.ClusterID + " at " + join(d.bootstrap), err
}

func (d *demo) makeTopic(ctx context.Context, name string, configs map[string]string) error {
	_, err := d.tenant.CreateTopic(ctx, d.st.ClusterID, wire.CreateTopic{Name: name, Partitions: partitions, ReplicationFactor: 3, Configs: configs})
	if err != nil && !client.IsConflict(err) {
		return err
	}
	_, err = d.tenant.WaitTopic(ctx, d.st.ClusterID, name)
	return err
}

func (d *demo) makeAccounts(ctx context.Context) (string, error) {
	any := func(t string, ops ...string) []wire.CreateACL { return rules(t, "*", "literal", ops...) }
	mover := slices.Concat(rules("topic", eventsTopic, "literal", "read", "write", "describe"), any("group", "read", "describe"),
		any("transactional_id", "write", "describe"), rules("cluster", "", "literal", "idempotent_write"))
	others := slices.Concat(rules("topic", "demo-", "prefixed", "read", "write", "describe"), rules("cluster", "", "literal", "idempotent_write"))
	for _, a := range []struct {
		name, what string
		at         *credential
		rules      []wire.CreateACL
		quota      *wire.PutQuota
	}{
		{"mover", "moves the events", &d.st.Account, mover, &moverQuota},
		{"bystander", "wants its latency left alone", &d.st.Bystander, others, nil},
		{"greedy", "wants far more than its quota", &d.st.Greedy, others, &greedyQuota},
	} {
		if err := d.makeAccount(ctx, a.name, a.what, a.at); err != nil {
			return "", err
		}
		if err := d.grant(ctx, a.at.ClientID, a.rules); err != nil {
			return "", err
		}
		if a.quota != nil {
			if _, err := d.tenant.PutQuota(ctx, d.st.ClusterID, a.at.ClientID, *a.quota); err != nil {
				return "", err
			}
			if _, err := d.tenant.WaitQuota(ctx, d.st.ClusterID, a.at.ClientID); err != nil {
				return "", err
			}
		}
		d.counts[a.at.ClientID] = &counter{}
	}
	return fmt.Sprintf("mover %s, bystander, greedy (%s/s in, %s/s out)", d.st.Account.ClientID,
		size(float64(*greedyQuota.BytesInPerSecond)), size(float64(*greedyQuota.BytesOutPerSecond))), nil
}

func rules(resource, name, pattern string, ops ...string) (out []wire.CreateACL) {
	for _, op := range ops {
		out = append(out, wire.CreateACL{ResourceType: resource, ResourceName: name, PatternType: pattern, Operation: op, Permission: "allow", Host: "*"})
	}
	return out
}

func (d *demo) makeAccount(ctx context.Context, name, what string, at *credential) error {
	if at.ClientID != "" {
		return nil
	}
	sa, err := d.tenant.CreateServiceAccount(ctx, d.st.ClusterID, wire.CreateServiceAccount{Name: name, Description: what})
	secret := sa.Secret
	if client.IsConflict(err) { // its first secret is lost: a second one
		var all []wire.ServiceAccount
		if all, err = d.tenant.ServiceAccounts(ctx, d.st.ClusterID); err == nil {
			i := slices.IndexFunc(all, func(a wire.ServiceAccount) bool { return a.Name == name })
			if i < 0 {
				return fmt.Errorf("service account %s is there and is not", name)
			}
			secret, err = d.tenant.AddSecret(ctx, d.st.ClusterID, all[i].ID, wire.CreateSecret{})
		}
	}
	if err != nil {
		return err
	}
	*at = credential{ClientID: secret.ClientID, ClientSecret: secret.ClientSecret}
	return d.save()
}

// grant makes sure of the rules and waits until the brokers enforce them.
func (d *demo) grant(ctx context.Context, account string, rules []wire.CreateACL) error {
	for _, r := range rules {
		r.ServiceAccountID = account
		if _, err := d.tenant.CreateACL(ctx, d.st.ClusterID, r); err != nil && !client.IsConflict(err) {
			return err
		}
	}
	have, err := d.tenant.ACLs(ctx, d.st.ClusterID, account)
	if err != nil {
		return err
	}
	for _, a := range have {
		if _, err := d.tenant.WaitACL(ctx, d.st.ClusterID, a.ID); err != nil {
			return err
		}
	}
	return nil
}
