// Command penstock-control is the control plane's daemon: it brings the schema
// up to date, serves the API and the token endpoint, and runs the reconcilers.
// Any number of them may run on one Postgres. Brokers live without it.
//
// It starts in this order and stops in the reverse: migrations, database
// pools, signing keys, hints, reconcilers, HTTP.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"penstock/controlplane/api"
	"penstock/controlplane/cluster"
	"penstock/controlplane/token"
	"penstock/migrations"
	"penstock/tenants/registry"
)

// options are the command line.
type options struct {
	DatabaseURL       string
	APIDatabaseURL    string
	WorkerDatabaseURL string
	Listen            string
	Issuer            string
	KeyFile           string
	OperatorFile      string
	ZooKeeper         string
	Engine            string
	EngineDir         string
	BrokerBinary      string
	LifelinePID       int
	NoRestart         bool
	BrokerSettings    settings
	LogLevel          slog.Level
}

// settings collects repeated key=value flags in order.
type settings []string

func (s *settings) String() string { return strings.Join(*s, ",") }

func (s *settings) Set(v string) error {
	if k, _, ok := strings.Cut(v, "="); !ok || k == "" {
		return errors.New("want key=value")
	}
	*s = append(*s, v)
	return nil
}

func parse(args []string) (options, error) {
	o := options{LogLevel: slog.LevelInfo}
	fs := flag.NewFlagSet("penstock-control", flag.ContinueOnError)
	fs.StringVar(&o.DatabaseURL, "database-url", os.Getenv("PENSTOCK_DATABASE_URL"), "Postgres as the schema's owner, for migrations and, through its roles, for all else (or PENSTOCK_DATABASE_URL)")
	fs.StringVar(&o.APIDatabaseURL, "api-database-url", "", "Postgres as a login that may only become penstock_api (default: --database-url)")
	fs.StringVar(&o.WorkerDatabaseURL, "worker-database-url", "", "Postgres as a login that may only become penstock_worker (default: --database-url)")
	fs.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "address of the API and the token endpoint")
	fs.StringVar(&o.Issuer, "issuer", "", "issuer of tokens, the URL at which the API is reached (default: http:// and the listen address)")
	fs.StringVar(&o.KeyFile, "key-file", "penstock-control.key", "32 bytes that seal what is secret in Postgres; made with mode 0600 if missing; the same for all replicas")
	fs.StringVar(&o.OperatorFile, "bootstrap-operator-file", "", "JSON file with client_id and client_secret of a fleet operator to make sure of")
	fs.StringVar(&o.ZooKeeper, "zookeeper", "", "host:port,... of the ensemble that clusters use")
	fs.StringVar(&o.Engine, "engine", "process", "what runs brokers: process")
	fs.StringVar(&o.EngineDir, "engine-dir", "", "process engine: folder of the brokers' settings and data")
	fs.StringVar(&o.BrokerBinary, "broker-binary", "", "process engine: path of penstock-broker")
	fs.IntVar(&o.LifelinePID, "lifeline-pid", 0, "process engine: brokers end when this process does; 0: they stay")
	fs.BoolVar(&o.NoRestart, "no-restart", false, "process engine: leave brokers that died dead")
	fs.Var(&o.BrokerSettings, "broker-set", "key=value put into every broker's server.properties last (repeatable)")
	fs.TextVar(&o.LogLevel, "log-level", o.LogLevel, "debug, info, warn or error")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.DatabaseURL == "" {
		return o, errors.New("--database-url is needed")
	}
	return o, nil
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "penstock-control:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: o.LogLevel}))
	if err := run(ctx, o, log, nil); err != nil {
		log.Error("penstock-control ends", "err", err)
		os.Exit(1)
	}
}

// run serves until ctx ends; ready, if not nil, is told the bound address.
func run(ctx context.Context, o options, log *slog.Logger, ready func(addr string)) error {
	// Bound first, served last: a port that is taken shows before anything is
	// changed, and callers who come early wait instead of being refused.
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return err
	}
	defer ln.Close()
	if o.Issuer == "" {
		o.Issuer = "http://" + ln.Addr().String()
	}
	o.Issuer = strings.TrimSuffix(o.Issuer, "/")

	if err := migrations.Up(ctx, o.DatabaseURL); err != nil {
		return err
	}
	sealer, err := registry.OpenKeyFile(o.KeyFile)
	if err != nil {
		return err
	}
	db, err := registry.Open(ctx, registry.OpenConfig{URL: o.DatabaseURL, APIURL: o.APIDatabaseURL, WorkerURL: o.WorkerDatabaseURL})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := bootstrapOperator(ctx, db, o.OperatorFile); err != nil {
		return err
	}
	keys, err := token.OpenKeys(ctx, token.KeysConfig{Pool: db.Worker(), Sealer: sealer, Logger: log})
	if err != nil {
		return err
	}
	defer keys.Close()
	hints := cluster.Listen(db.Worker().Config().ConnConfig, log)
	defer hints.Close()
	stopReconcilers, err := startReconcilers(ctx, deps{options: o, DB: db, Sealer: sealer, Hints: hints, Log: log})
	if err != nil {
		return err
	}
	defer stopReconcilers()

	tokens := token.New(token.Config{DB: db, Keys: keys, Issuer: o.Issuer, Logger: log})
	a := api.New(api.Config{DB: db, Tokens: tokens, Sealer: sealer, Hints: hints, TokenURL: o.Issuer + token.TokenPath, Logger: log})
	defer a.Close()
	return serve(ctx, ln, a, log, ready)
}

// serve answers HTTP until ctx ends, then lets calls in flight finish.
func serve(ctx context.Context, ln net.Listener, a *api.API, log *slog.Logger, ready func(addr string)) error {
	srv := &http.Server{
		Handler:           a.Handler(),
		ReadHeaderTimeout: 5 * time.Second,  // bodies are bounded in the API; a ReadTimeout would end calls that hold
		WriteTimeout:      90 * time.Second, // above the longest wait
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	srv.RegisterOnShutdown(a.EndWaits)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	log.Info("penstock-control serves", "addr", ln.Addr().String())
	if ready != nil {
		ready(ln.Addr().String())
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	log.Info("penstock-control stops")
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := srv.Shutdown(closing)
	if err != nil {
		srv.Close()
	}
	if served := <-served; !errors.Is(served, http.ErrServerClosed) {
		return served
	}
	return err
}

// bootstrapOperator makes sure of the operator in the file, if there is one.
func bootstrapOperator(ctx context.Context, db *registry.DB, path string) error {
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("bootstrap operator: %w", err)
	}
	var f struct {
		ClientID     string `json:"client_id"`
		ClientSecret string `json:"client_secret"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("bootstrap operator: %s: %w", path, err)
	}
	err = db.AsWorker(ctx, func(tx pgx.Tx) error {
		return registry.EnsureOperator(ctx, tx, f.ClientID, f.ClientSecret, "bootstrap")
	})
	if err != nil {
		return fmt.Errorf("bootstrap operator: %w", err)
	}
	return nil
}
