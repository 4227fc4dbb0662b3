package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"penstock/controlplane/api/wire"
)

// waitSeconds is how long one waiting call may hold; the Wait functions repeat it.
const waitSeconds = 30

func get[T any](ctx context.Context, c *Client, path string, wait bool) (T, error) {
	var out T
	err := c.do(ctx, call{method: http.MethodGet, path: path, wait: wait}, &out)
	return out, err
}

func send[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var out T
	err := c.do(ctx, call{method: method, path: path, body: body}, &out)
	return out, err
}

func esc(s string) string { return url.PathEscape(s) }

// Plans lists all plans.
func (c *Client) Plans(ctx context.Context) ([]wire.Plan, error) {
	return all[wire.Plan](ctx, c, "/v1/plans", nil)
}

// CreatePlan makes a plan; operators only.
func (c *Client) CreatePlan(ctx context.Context, in wire.CreatePlan) (wire.Plan, error) {
	return send[wire.Plan](ctx, c, http.MethodPost, "/v1/plans", in)
}

// Tenants lists all tenants (operators), or the caller's own.
func (c *Client) Tenants(ctx context.Context) ([]wire.Tenant, error) {
	return all[wire.Tenant](ctx, c, "/v1/tenants", nil)
}

// CreateTenant makes a tenant; operators only.
func (c *Client) CreateTenant(ctx context.Context, in wire.CreateTenant) (wire.Tenant, error) {
	return send[wire.Tenant](ctx, c, http.MethodPost, "/v1/tenants", in)
}

// Tenant reads a tenant.
func (c *Client) Tenant(ctx context.Context, id string) (wire.Tenant, error) {
	return get[wire.Tenant](ctx, c, "/v1/tenants/"+esc(id), false)
}

// CreateAccount makes an automation account; the answer holds its secret, which is never shown again.
func (c *Client) CreateAccount(ctx context.Context, tenant string, in wire.CreateAccount) (wire.NewAccount, error) {
	return send[wire.NewAccount](ctx, c, http.MethodPost, "/v1/tenants/"+esc(tenant)+"/accounts", in)
}

// Accounts lists a tenant's automation accounts.
func (c *Client) Accounts(ctx context.Context, tenant string) ([]wire.Account, error) {
	return all[wire.Account](ctx, c, "/v1/tenants/"+esc(tenant)+"/accounts", nil)
}

// DeleteAccount ends an automation account.
func (c *Client) DeleteAccount(ctx context.Context, tenant, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/v1/tenants/" + esc(tenant) + "/accounts/" + esc(id)}, nil)
}

// AddAccountSecret gives an automation account a second live secret.
func (c *Client) AddAccountSecret(ctx context.Context, tenant, id string, in wire.CreateSecret) (wire.NewSecret, error) {
	return send[wire.NewSecret](ctx, c, http.MethodPost, "/v1/tenants/"+esc(tenant)+"/accounts/"+esc(id)+"/secrets", in)
}

// RevokeAccountSecret ends a secret of an automation account.
func (c *Client) RevokeAccountSecret(ctx context.Context, tenant, id, secret string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/v1/tenants/" + esc(tenant) + "/accounts/" + esc(id) + "/secrets/" + esc(secret)}, nil)
}

// CreateMember adds a member to the caller's tenant.
func (c *Client) CreateMember(ctx context.Context, in wire.CreateMember) (wire.Member, error) {
	return send[wire.Member](ctx, c, http.MethodPost, "/v1/members", in)
}

// Members lists the members of the caller's tenant.
func (c *Client) Members(ctx context.Context) ([]wire.Member, error) {
	return all[wire.Member](ctx, c, "/v1/members", nil)
}

// CreateCluster asks for a cluster; WaitCluster waits until it is there.
func (c *Client) CreateCluster(ctx context.Context, in wire.CreateCluster) (wire.ClusterOperation, error) {
	return send[wire.ClusterOperation](ctx, c, http.MethodPost, "/v1/clusters", in)
}

// Clusters lists the tenant's clusters.
func (c *Client) Clusters(ctx context.Context) ([]wire.Cluster, error) {
	return all[wire.Cluster](ctx, c, "/v1/clusters", nil)
}

// Cluster reads a cluster.
func (c *Client) Cluster(ctx context.Context, id string) (wire.Cluster, error) {
	return get[wire.Cluster](ctx, c, clusterPath(id), false)
}

// DeleteCluster asks that a cluster go; WaitOperation waits for it.
func (c *Client) DeleteCluster(ctx context.Context, id string) (wire.ClusterOperation, error) {
	return send[wire.ClusterOperation](ctx, c, http.MethodDelete, clusterPath(id), nil)
}

// Operations lists the tenant's operations, newest first.
func (c *Client) Operations(ctx context.Context) ([]wire.Operation, error) {
	return all[wire.Operation](ctx, c, "/v1/operations", nil)
}

// Operation reads an operation.
func (c *Client) Operation(ctx context.Context, id string) (wire.Operation, error) {
	return get[wire.Operation](ctx, c, "/v1/operations/"+esc(id), false)
}

func clusterPath(id string) string { return "/v1/clusters/" + esc(id) }

func topicPath(cluster, name string) string { return clusterPath(cluster) + "/topics/" + esc(name) }

func accountPath(cluster, id string) string {
	return clusterPath(cluster) + "/service-accounts/" + esc(id)
}

// CreateTopic asks for a topic; WaitTopic waits until the brokers have it.
func (c *Client) CreateTopic(ctx context.Context, cluster string, in wire.CreateTopic) (wire.Topic, error) {
	return send[wire.Topic](ctx, c, http.MethodPost, clusterPath(cluster)+"/topics", in)
}

// Topics lists a cluster's topics.
func (c *Client) Topics(ctx context.Context, cluster string) ([]wire.Topic, error) {
	return all[wire.Topic](ctx, c, clusterPath(cluster)+"/topics", nil)
}

// Topic reads a topic.
func (c *Client) Topic(ctx context.Context, cluster, name string) (wire.Topic, error) {
	return get[wire.Topic](ctx, c, topicPath(cluster, name), false)
}

// UpdateTopic changes configs, or grows the number of partitions.
func (c *Client) UpdateTopic(ctx context.Context, cluster, name string, in wire.UpdateTopic) (wire.Topic, error) {
	return send[wire.Topic](ctx, c, http.MethodPatch, topicPath(cluster, name), in)
}

// DeleteTopic asks that a topic go and waits until it is gone.
func (c *Client) DeleteTopic(ctx context.Context, cluster, name string) error {
	return c.deleteAndWait(ctx, topicPath(cluster, name))
}

// CreateServiceAccount makes a service account; the answer holds its first secret, which is never shown again.
func (c *Client) CreateServiceAccount(ctx context.Context, cluster string, in wire.CreateServiceAccount) (wire.NewServiceAccount, error) {
	return send[wire.NewServiceAccount](ctx, c, http.MethodPost, clusterPath(cluster)+"/service-accounts", in)
}

// ServiceAccounts lists a cluster's service accounts.
func (c *Client) ServiceAccounts(ctx context.Context, cluster string) ([]wire.ServiceAccount, error) {
	return all[wire.ServiceAccount](ctx, c, clusterPath(cluster)+"/service-accounts", nil)
}

// ServiceAccount reads a service account.
func (c *Client) ServiceAccount(ctx context.Context, cluster, id string) (wire.ServiceAccount, error) {
	return get[wire.ServiceAccount](ctx, c, accountPath(cluster, id), false)
}

// DeleteServiceAccount ends a service account: no new tokens at once, its quota and rules go from the brokers soon after.
func (c *Client) DeleteServiceAccount(ctx context.Context, cluster, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: accountPath(cluster, id)}, nil)
}

// AddSecret gives a service account a second live secret.
func (c *Client) AddSecret(ctx context.Context, cluster, account string, in wire.CreateSecret) (wire.NewSecret, error) {
	return send[wire.NewSecret](ctx, c, http.MethodPost, accountPath(cluster, account)+"/secrets", in)
}

// RevokeSecret ends a secret; within seconds the brokers refuse the tokens made with
// it and cut the connections that logged in with one.
func (c *Client) RevokeSecret(ctx context.Context, cluster, account, secret string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: accountPath(cluster, account) + "/secrets/" + esc(secret)}, nil)
}

// PutQuota sets a service account's quota; WaitQuota waits until it is enforced.
func (c *Client) PutQuota(ctx context.Context, cluster, account string, in wire.PutQuota) (wire.Quota, error) {
	return send[wire.Quota](ctx, c, http.MethodPut, accountPath(cluster, account)+"/quota", in)
}

// Quota reads a service account's quota.
func (c *Client) Quota(ctx context.Context, cluster, account string) (wire.Quota, error) {
	return get[wire.Quota](ctx, c, accountPath(cluster, account)+"/quota", false)
}

// DeleteQuota lifts a service account's quota and waits until the brokers have.
func (c *Client) DeleteQuota(ctx context.Context, cluster, account string) error {
	return c.deleteAndWait(ctx, accountPath(cluster, account)+"/quota")
}

// CreateACL asks for an access rule; WaitACL waits until it is enforced.
func (c *Client) CreateACL(ctx context.Context, cluster string, in wire.CreateACL) (wire.ACL, error) {
	return send[wire.ACL](ctx, c, http.MethodPost, clusterPath(cluster)+"/acls", in)
}

// ACLs lists a cluster's rules, of one service account or of all ("").
func (c *Client) ACLs(ctx context.Context, cluster, account string) ([]wire.ACL, error) {
	q := url.Values{}
	if account != "" {
		q.Set("service_account_id", account)
	}
	return all[wire.ACL](ctx, c, clusterPath(cluster)+"/acls", q)
}

// DeleteACL asks that a rule go and waits until it is gone.
func (c *Client) DeleteACL(ctx context.Context, cluster, id string) error {
	return c.deleteAndWait(ctx, clusterPath(cluster)+"/acls/"+esc(id))
}

// Usage reads what the cluster's service accounts have moved so far.
func (c *Client) Usage(ctx context.Context, cluster string) (wire.Usage, error) {
	return get[wire.Usage](ctx, c, clusterPath(cluster)+"/usage", false)
}

// deleteAndWait deletes and holds until a read answers 404. Deleting what is
// gone already is a success.
func (c *Client) deleteAndWait(ctx context.Context, path string) error {
	for {
		err := c.do(ctx, call{method: http.MethodDelete, path: path, wait: true}, nil)
		if IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("delete %s: %w", path, ctx.Err())
		}
	}
}
