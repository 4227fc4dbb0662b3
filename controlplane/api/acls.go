package api

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/cluster"
	"penstock/tenants"
	"penstock/tenants/registry"
)

// aclOperations are the operations that Kafka knows for each kind of resource.
// Of a cluster those are missing that would go round the control plane
// (quotas, access rules, broker settings) or pretend to be a broker.
var aclOperations = map[string][]string{
	"topic":            {"all", "read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs"},
	"group":            {"all", "read", "describe", "delete"},
	"cluster":          {"create", "describe", "describe_configs", "idempotent_write"},
	"transactional_id": {"all", "describe", "write"},
}

const clusterResource = "kafka-cluster" // the only name of a resource of the kind cluster

func wireACL(x cluster.ACL) wire.ACL {
	return wire.ACL{ID: x.ID, ServiceAccountID: x.ServiceAccountID, Host: x.Host, ResourceType: x.ResourceType, ResourceName: x.ResourceName,
		PatternType: x.PatternType, Operation: x.Operation, Permission: x.Permission, Status: wireStatus(x.Applied), CreatedAt: x.CreatedAt}
}

// checkACL completes a rule and refuses what Kafka or the service would.
func checkACL(in *wire.CreateACL) error {
	if in.ResourceType == "cluster" {
		if in.ResourceName == "" {
			in.ResourceName = clusterResource
		}
		if in.ResourceName != clusterResource || in.PatternType != "literal" {
			return invalid("body.resource_name", "a rule about the cluster is literal and names "+clusterResource+" or nothing")
		}
	}
	if in.ResourceName == "" {
		return invalid("body.resource_name", "needed for this kind of resource; * is any")
	}
	if err := oneLine(in.ResourceName); err != nil {
		return invalid("body.resource_name", err.Error())
	}
	if !slices.Contains(aclOperations[in.ResourceType], in.Operation) {
		return invalid("body.operation", "one of "+strings.Join(aclOperations[in.ResourceType], ", ")+" for this kind of resource")
	}
	if in.ResourceType == "topic" && in.Permission == "allow" {
		// "_" as a prefix would reach the service's own topics as well.
		if tenants.InternalTopic(in.ResourceName) || in.PatternType == "prefixed" && strings.HasPrefix("__", in.ResourceName) {
			return invalid("body.resource_name", "names that start with __ belong to the service")
		}
		if in.ResourceName != "*" || in.PatternType == "prefixed" {
			if err := tenants.CheckTopicName(in.ResourceName); err != nil {
				return invalid("body.resource_name", err.Error())
			}
		}
	}
	if in.Host != "*" && net.ParseIP(in.Host) == nil {
		return invalid("body.host", "an IP address, or * for any")
	}
	return nil
}

func (a *API) registerACLs() {
	const base = "/v1/clusters/{cluster}/acls"
	type ACLPath struct {
		ClusterPath
		ACL string `path:"acl" maxLength:"64"`
	}

	register(a, tenantWrites, huma.Operation{OperationID: "create-acl", Method: http.MethodPost, Path: base, Tags: []string{"access rules"}, DefaultStatus: http.StatusCreated},
		func(ctx context.Context, c *caller, in *struct {
			ClusterPath
			Idempotency
			Waiting
			Body wire.CreateACL
		}) (*output[wire.ACL], error) {
			body := in.Body
			if err := checkACL(&body); err != nil {
				return nil, err
			}
			out, err := once(ctx, a, c, in.Idempotency, in.Body, http.StatusCreated, a.own(c), func(tx pgx.Tx) (wire.ACL, error) {
				if _, err := cluster.LockWritable(ctx, tx, c.TenantID, in.Cluster); err != nil {
					return wire.ACL{}, err
				}
				if _, err := registry.GetServiceAccount(ctx, tx, c.TenantID, in.Cluster, body.ServiceAccountID); err != nil {
					return wire.ACL{}, invalid("body.service_account_id", "no such service account in this cluster")
				}
				n, err := cluster.CountACLs(ctx, tx, c.TenantID, in.Cluster)
				if err != nil {
					return wire.ACL{}, err
				}
				if err := tenants.CheckCount("access rules of the cluster", n, 1, cluster.MaxACLs); err != nil {
					return wire.ACL{}, err
				}
				x, err := cluster.CreateACL(ctx, tx, c.TenantID, in.Cluster, cluster.ACL{ServiceAccountID: body.ServiceAccountID, Host: body.Host,
					ResourceType: body.ResourceType, ResourceName: body.ResourceName, PatternType: body.PatternType,
					Operation: body.Operation, Permission: body.Permission}, c.by(ctx))
				if err != nil {
					return wire.ACL{}, err
				}
				return wireACL(*x), nil
			})
			if err != nil {
				return nil, err
			}
			return a.aclAnswer(ctx, c, http.StatusCreated, in.Cluster, out.ID, in.Waiting)
		})

	register(a, tenantReads, huma.Operation{OperationID: "list-acls", Method: http.MethodGet, Path: base, Tags: []string{"access rules"}},
		func(ctx context.Context, c *caller, in *struct {
			ClusterPath
			Paging
			Account string `query:"service_account_id" maxLength:"64" doc:"Only this service account's"`
		}) (*output[wire.Page[wire.ACL]], error) {
			after, err := a.after(ctx, c, in.Paging)
			if err != nil {
				return nil, err
			}
			var found []cluster.ACL
			err = a.tx(ctx, c, func(tx pgx.Tx) error {
				if _, err := cluster.Get(ctx, tx, c.TenantID, in.Cluster); err != nil {
					return err
				}
				found, err = cluster.ListACLs(ctx, tx, c.TenantID, in.Cluster, in.Account, cluster.Page{After: after, Limit: in.Limit})
				return err
			})
			next := a.next(ctx, c, in.Paging, len(found), func() string { return found[len(found)-1].ID })
			return answer(http.StatusOK, wire.Page[wire.ACL]{Items: mapAll(found, wireACL), Next: next}), err
		})

	register(a, tenantReads, huma.Operation{OperationID: "get-acl", Method: http.MethodGet, Path: base + "/{acl}", Tags: []string{"access rules"}},
		func(ctx context.Context, c *caller, in *struct {
			ACLPath
			Waiting
		}) (*output[wire.ACL], error) {
			return a.aclAnswer(ctx, c, http.StatusOK, in.Cluster, in.ACL, in.Waiting)
		})

	register(a, tenantWrites, huma.Operation{OperationID: "delete-acl", Method: http.MethodDelete, Path: base + "/{acl}", Tags: []string{"access rules"}, DefaultStatus: http.StatusAccepted},
		func(ctx context.Context, c *caller, in *struct {
			ACLPath
			Waiting
		}) (*gone, error) {
			err := a.tx(ctx, c, func(tx pgx.Tx) error {
				if _, err := cluster.LockWritable(ctx, tx, c.TenantID, in.Cluster); err != nil {
					return err
				}
				return cluster.DeleteACL(ctx, tx, c.TenantID, in.Cluster, in.ACL, c.by(ctx))
			})
			if err != nil {
				return nil, err
			}
			return a.awaitGone(ctx, c, in.Waiting, func(tx pgx.Tx) error {
				_, err := cluster.GetACL(ctx, tx, c.TenantID, in.Cluster, in.ACL)
				return err
			})
		})
}

func (a *API) aclAnswer(ctx context.Context, c *caller, status int, clusterID, id string, w Waiting) (*output[wire.ACL], error) {
	var out wire.ACL
	err := a.await(ctx, c, w, func(tx pgx.Tx) (bool, error) {
		x, err := cluster.GetACL(ctx, tx, c.TenantID, clusterID, id)
		if err != nil {
			return false, err
		}
		out = wireACL(*x)
		return settled(out.Status), nil
	})
	o := answer(status, out)
	if status == http.StatusCreated {
		o.Location = "/v1/clusters/" + clusterID + "/acls/" + id
	}
	return o, err
}
