package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The roles that the migrations make.
const (
	RoleAPI    = "penstock_api"
	RoleWorker = "penstock_worker"
)

// Errors of this package.
var (
	ErrNotFound  = errors.New("not found")
	ErrConflict  = errors.New("already exists")
	ErrTooMany   = errors.New("too many")
	ErrBadClient = errors.New("unknown client or wrong secret")
)

// DB is the control plane's two ways into Postgres.
type DB struct {
	api, worker *pgxpool.Pool
}

// OpenConfig says where the database is and under which roles.
type OpenConfig struct {
	// URL logs in as a member of both roles, such as the owner; every session
	// then starts as the role itself, before any statement, and RESET ROLE
	// leads back to that role only.
	URL string
	// APIURL and WorkerURL, if set, are logins of their own that replace URL.
	APIURL, WorkerURL string
	MaxConns          int32 // of each pool; 0 means 16
}

// Open makes both pools and checks that they work under their roles.
func Open(ctx context.Context, cfg OpenConfig) (*DB, error) {
	if cfg.MaxConns == 0 {
		cfg.MaxConns = 16
	}
	api, err := openPool(ctx, cfg, cfg.APIURL, RoleAPI)
	if err != nil {
		return nil, err
	}
	worker, err := openPool(ctx, cfg, cfg.WorkerURL, RoleWorker)
	if err != nil {
		api.Close()
		return nil, err
	}
	return &DB{api: api, worker: worker}, nil
}

func openPool(ctx context.Context, cfg OpenConfig, url, role string) (*pgxpool.Pool, error) {
	if url == "" {
		url = cfg.URL
	}
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	pc.MaxConns = cfg.MaxConns
	pc.ConnConfig.RuntimeParams["role"] = role
	pc.ConnConfig.RuntimeParams["application_name"] = "penstock-control " + role
	pc.ConnConfig.RuntimeParams["timezone"] = "UTC"
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	var can bool
	err = pool.QueryRow(ctx, `SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user`).Scan(&can)
	if err == nil && can {
		err = fmt.Errorf("the role %s bypasses row security", role)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("database: %w", err)
	}
	return pool, nil
}

// Close closes both pools; it waits for connections in use.
func (db *DB) Close() {
	db.api.Close()
	db.worker.Close()
}

// Worker is the pool under penstock_worker, for reconcilers and metering.
func (db *DB) Worker() *pgxpool.Pool { return db.worker }

// Ping says whether Postgres answers.
func (db *DB) Ping(ctx context.Context) error { return db.worker.Ping(ctx) }

// AsTenant runs fn in a transaction in which only this tenant's rows exist.
// The binding ends with the transaction, so a pooled connection cannot carry
// it to the next caller.
func (db *DB) AsTenant(ctx context.Context, tenant string, fn func(tx pgx.Tx) error) error {
	if tenant == "" {
		return errors.New("registry: AsTenant without a tenant")
	}
	return pgx.BeginFunc(ctx, db.api, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('app.tenant_id', $1, true)`, tenant); err != nil {
			return err
		}
		return fn(tx)
	})
}

// AsWorker runs fn in a transaction that sees every tenant.
func (db *DB) AsWorker(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db.worker, fn)
}

func isConflict(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505"
}

// one reads exactly one row or gives ErrNotFound.
func one[T any](ctx context.Context, tx pgx.Tx, scan pgx.RowToFunc[T], sql string, args ...any) (*T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	v, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &v, nil
}

func many[T any](ctx context.Context, tx pgx.Tx, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}
