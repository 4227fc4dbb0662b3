// Package api is the control plane's door: the REST API under /v1, a file a
// resource, with its OpenAPI 3.1 document at /openapi.json.
//
// A call is: request id, size limit, token, role, then one transaction bound
// to the caller's tenant, in which the change, its audit row, its event and the
// stored answer of an Idempotency-Key stand or fall together. Another tenant's
// things do not exist for a caller: 404. Every refusal is an RFC 9457 problem
// with a stable code and the request's id.
//
// Changes inside a cluster answer when they are stored; their status tells when
// the brokers enforce them, and wait=applied or Prefer: wait=N holds the answer
// until then. Waits live on hints from Postgres and on polling, and end early
// when the server stops.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/cluster"
	"penstock/controlplane/token"
	"penstock/tenants/registry"
)

// Config of the API.
type Config struct {
	DB       *registry.DB
	Tokens   *token.Server
	Sealer   *registry.Sealer
	Hints    *cluster.Listener
	TokenURL string       // shown to those who connect to a cluster
	Logger   *slog.Logger // nil: discard

	BodyTimeout time.Duration // for a request's body to come in; 0 means 10 seconds
}

// API is the server's handler and its upkeep.
type API struct {
	cfg     Config
	huma    huma.API
	handler http.Handler
	stop    chan struct{} // ends waits
	cancel  context.CancelFunc
	upkeep  sync.WaitGroup
	closing sync.Once
}

// maxBody bounds every request body.
const maxBody = 256 << 10

// New makes the API; Close ends what it started.
func New(cfg Config) *API {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.BodyTimeout == 0 {
		cfg.BodyTimeout = 10 * time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &API{cfg: cfg, stop: make(chan struct{}), cancel: cancel}

	mux := http.NewServeMux()
	hc := huma.DefaultConfig("Penstock", "1.0.0")
	hc.Info.Description = "Tenants, clusters, topics, quotas and credentials of a managed Kafka-compatible service."
	hc.CreateHooks = nil // no $schema members in bodies
	hc.DocsPath, hc.SchemasPath = "", ""
	hc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"oauth2": {Type: "oauth2", Flows: &huma.OAuthFlows{ClientCredentials: &huma.OAuthFlow{TokenURL: cfg.TokenURL, Scopes: map[string]string{}}}},
	}
	hc.Security = []map[string][]string{{"oauth2": {}}}
	a.huma = humago.New(mux, hc)
	a.huma.UseMiddleware(a.authenticate)

	a.registerPlans()
	a.registerTenants()
	a.registerAccountSecrets()
	a.registerMembers()
	a.registerClusters()
	a.registerTopics()
	a.registerServiceAccounts()
	a.registerQuotas()
	a.registerACLs()
	a.registerOperations()
	a.registerUsage()

	cfg.Tokens.Register(mux)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, newProblem(r.Context(), http.StatusNotFound, "no such path or method"))
	})
	a.handler = a.outer(mux)
	a.upkeep.Go(func() { a.purge(ctx) })
	return a
}

// Handler serves the API, the token endpoint and the health checks.
func (a *API) Handler() http.Handler { return a.handler }

// OpenAPI is the API's document.
func (a *API) OpenAPI() *huma.OpenAPI { return a.huma.OpenAPI() }

// EndWaits answers all waiting calls with what is so far; call it when the
// server begins to stop.
func (a *API) EndWaits() { a.closing.Do(func() { close(a.stop) }) }

// Close ends waits and upkeep and waits for the latter.
func (a *API) Close() {
	a.EndWaits()
	a.cancel()
	a.upkeep.Wait()
}

func (a *API) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := a.cfg.DB.Ping(ctx); err != nil {
		a.cfg.Logger.Warn("not ready", "err", err)
		writeProblem(w, newProblem(r.Context(), http.StatusServiceUnavailable, "Postgres does not answer"))
		return
	}
	w.Write([]byte("ok\n"))
}

// purge drops stored answers a day old.
func (a *API) purge(ctx context.Context) {
	t := time.NewTicker(10 * time.Minute)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			err := a.cfg.DB.AsWorker(ctx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `DELETE FROM idempotency_keys WHERE created_at < now() - interval '24 hours'`)
				return err
			})
			if err != nil && !errors.Is(err, context.Canceled) {
				a.cfg.Logger.Warn("cannot purge stored answers", "err", err)
			}
		}
	}
}
