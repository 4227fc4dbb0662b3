package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/cluster"
	"penstock/tenants"
	"penstock/tenants/registry"
)

// clusterSettings are the broker settings that a tenant may choose. All others
// are the service's: listeners, storage, security, placement.
var clusterSettings = []string{
	"auto.create.topics.enable", "compression.type", "connections.max.idle.ms", "default.replication.factor",
	"group.initial.rebalance.delay.ms", "group.max.session.timeout.ms", "group.min.session.timeout.ms",
	"log.cleanup.policy", "log.message.timestamp.type", "log.retention.bytes", "log.retention.hours", "log.retention.ms",
	"log.roll.ms", "log.segment.bytes", "message.max.bytes", "min.insync.replicas", "num.partitions",
	"offsets.retention.minutes", "unclean.leader.election.enable",
}

type ClusterPath struct {
	Cluster string `path:"cluster" maxLength:"64"`
}

func wireProblem(p *cluster.Problem) *wire.StatusProblem {
	if p == nil {
		return nil
	}
	return &wire.StatusProblem{Type: p.Type, Title: p.Title, Detail: p.Detail, Retryable: p.Retryable}
}

func (a *API) wireCluster(c *cluster.Cluster, brokers []cluster.Broker) wire.Cluster {
	return wire.Cluster{
		ID: c.ID, Name: c.Name, Brokers: c.Brokers, Config: c.Config, Bootstrap: c.Bootstrap,
		SecurityProtocol: "SASL_PLAINTEXT", SASLMechanism: "OAUTHBEARER", TokenURL: a.cfg.TokenURL,
		Status: wire.ClusterStatus{State: string(c.State), Generation: c.Generation, ObservedGeneration: c.ObservedGeneration,
			Problem: wireProblem(c.Problem),
			Brokers: mapAll(brokers, func(b cluster.Broker) wire.BrokerStatus {
				return wire.BrokerStatus{ID: b.ID, Address: net.JoinHostPort(b.Host, strconv.Itoa(b.ClientPort)), State: b.State}
			})},
		CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
	}
}

func wireOperation(o cluster.Operation) wire.Operation {
	return wire.Operation{ID: o.ID, Kind: o.Kind, ClusterID: o.ClusterID, State: o.State, Step: o.Step, Percent: o.Percent,
		Problem: wireProblem(o.Problem), CreatedAt: o.CreatedAt, StartedAt: o.StartedAt, FinishedAt: o.FinishedAt}
}

// getCluster reads a cluster with its brokers, as the caller sees it.
func (a *API) getCluster(ctx context.Context, tx pgx.Tx, tenant, id string) (wire.Cluster, error) {
	c, err := cluster.Get(ctx, tx, tenant, id)
	if err != nil {
		return wire.Cluster{}, err
	}
	brokers, err := cluster.ListBrokers(ctx, tx, tenant, id)
	return a.wireCluster(c, brokers), err
}

func (a *API) registerClusters() {
	register(a, tenantWrites, huma.Operation{OperationID: "create-cluster", Method: http.MethodPost, Path: "/v1/clusters", Tags: []string{"clusters"},
		DefaultStatus: http.StatusAccepted, Description: "Asks for a cluster. It can be read at once; the operation tells how far it is."},
		func(ctx context.Context, c *caller, in *struct {
			Idempotency
			Waiting
			Body wire.CreateCluster
		}) (*output[wire.ClusterOperation], error) {
			if err := tenants.CheckClusterName(in.Body.Name); err != nil {
				return nil, invalid("body.name", err.Error())
			}
			for name, value := range in.Body.Config {
				if !slices.Contains(clusterSettings, name) {
					return nil, invalid("body.config."+name, "not a setting that a tenant may choose")
				}
				if err := oneLine(value); err != nil {
					return nil, invalid("body.config."+name, err.Error())
				}
			}
			out, err := once(ctx, a, c, in.Idempotency, in.Body, http.StatusAccepted, a.own(c), func(tx pgx.Tx) (wire.ClusterOperation, error) {
				var out wire.ClusterOperation
				limits, err := registry.Limits(ctx, tx, c.TenantID)
				if err != nil {
					return out, err
				}
				have, err := cluster.Count(ctx, tx, c.TenantID)
				if err != nil {
					return out, err
				}
				if err := tenants.CheckCount("clusters", have, 1, limits.Clusters); err != nil {
					return out, err
				}
				if err := tenants.CheckCount("brokers of a cluster", 0, in.Body.Brokers, limits.BrokersPerCluster); err != nil {
					return out, err
				}
				cl, op, err := cluster.Create(ctx, tx, c.TenantID, cluster.CreateParams{Name: in.Body.Name, Brokers: in.Body.Brokers, Config: in.Body.Config}, c.by(ctx))
				if err != nil {
					return out, err
				}
				out.Cluster, out.Operation = a.wireCluster(cl, nil), wireOperation(*op)
				return out, nil
			})
			if err != nil {
				return nil, err
			}
			err = a.awaitOperation(ctx, c, in.Waiting, &out)
			o := answer(http.StatusAccepted, out)
			o.Location, o.ETag = "/v1/operations/"+out.Operation.ID, etag(out.Cluster.Status.Generation)
			return o, err
		})

	register(a, tenantReads, huma.Operation{OperationID: "list-clusters", Method: http.MethodGet, Path: "/v1/clusters", Tags: []string{"clusters"}},
		func(ctx context.Context, c *caller, in *struct{ Paging }) (*output[wire.Page[wire.Cluster]], error) {
			after, err := a.after(ctx, c, in.Paging)
			if err != nil {
				return nil, err
			}
			page := wire.Page[wire.Cluster]{Items: []wire.Cluster{}}
			err = a.tx(ctx, c, func(tx pgx.Tx) error {
				found, err := cluster.List(ctx, tx, c.TenantID, cluster.Page{After: after, Limit: in.Limit})
				if err != nil {
					return err
				}
				for i := range found {
					brokers, err := cluster.ListBrokers(ctx, tx, c.TenantID, found[i].ID)
					if err != nil {
						return err
					}
					page.Items = append(page.Items, a.wireCluster(&found[i], brokers))
				}
				page.Next = a.next(ctx, c, in.Paging, len(found), func() string { return found[len(found)-1].ID })
				return nil
			})
			return answer(http.StatusOK, page), err
		})

	register(a, tenantReads, huma.Operation{OperationID: "get-cluster", Method: http.MethodGet, Path: "/v1/clusters/{cluster}", Tags: []string{"clusters"},
		Description: "With a wait: holds until the cluster is ready, failed or deleted."},
		func(ctx context.Context, c *caller, in *struct {
			ClusterPath
			Waiting
		}) (*output[wire.Cluster], error) {
			var out wire.Cluster
			err := a.await(ctx, c, in.Waiting, func(tx pgx.Tx) (done bool, err error) {
				out, err = a.getCluster(ctx, tx, c.TenantID, in.Cluster)
				switch cluster.State(out.Status.State) {
				case cluster.Ready, cluster.Failed, cluster.Deleted:
					done = true
				}
				return done, err
			})
			o := answer(http.StatusOK, out)
			o.ETag = etag(out.Status.Generation)
			return o, err
		})

	register(a, tenantWrites, huma.Operation{OperationID: "delete-cluster", Method: http.MethodDelete, Path: "/v1/clusters/{cluster}", Tags: []string{"clusters"},
		DefaultStatus: http.StatusAccepted, Description: "Asks that a cluster go with all its data. Asked again it gives the same operation."},
		func(ctx context.Context, c *caller, in *struct {
			ClusterPath
			Waiting
		}) (*output[wire.ClusterOperation], error) {
			var out wire.ClusterOperation
			err := a.tx(ctx, c, func(tx pgx.Tx) error {
				op, err := cluster.RequestDelete(ctx, tx, c.TenantID, in.Cluster, c.by(ctx))
				if err != nil {
					return err
				}
				out.Operation = wireOperation(*op)
				out.Cluster, err = a.getCluster(ctx, tx, c.TenantID, in.Cluster)
				return err
			})
			if err != nil {
				return nil, err
			}
			err = a.awaitOperation(ctx, c, in.Waiting, &out)
			o := answer(http.StatusAccepted, out)
			o.Location = "/v1/operations/" + out.Operation.ID
			return o, err
		})
}

// awaitOperation holds until the operation has ended and refreshes out.
func (a *API) awaitOperation(ctx context.Context, c *caller, w Waiting, out *wire.ClusterOperation) error {
	if w.duration() == 0 {
		return nil
	}
	return a.await(ctx, c, w, func(tx pgx.Tx) (bool, error) {
		op, err := cluster.GetOperation(ctx, tx, c.TenantID, out.Operation.ID)
		if err != nil {
			return false, err
		}
		out.Operation = wireOperation(*op)
		out.Cluster, err = a.getCluster(ctx, tx, c.TenantID, out.Cluster.ID)
		return op.FinishedAt != nil, err
	})
}

// oneLine refuses values that would break out of a line of server.properties.
func oneLine(value string) error {
	if value == "" || len(value) > 1000 {
		return fmt.Errorf("a value has 1 to 1000 characters")
	}
	for _, r := range value {
		if r < 0x20 || r == 0x7f || r == '\\' || r == 0x2028 || r == 0x2029 {
			return fmt.Errorf("a value holds no control characters and no backslash")
		}
	}
	return nil
}
