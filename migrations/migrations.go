// Package migrations holds the control plane's schema as numbered SQL files
// and brings a database up to it.
//
// The schema only goes forward: there are no down files, and a file that has
// been released is never edited. Every tenant table has row-level security,
// enabled and forced, and the daemon works under two roles that own nothing:
// see 00002_roles_and_policies.sql. The owner must be allowed to create roles,
// or both roles must be there already with the owner as a member.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// Up brings the database at ownerURL to the newest version. Several processes
// may call it at once: one works, the others wait for it.
func Up(ctx context.Context, ownerURL string) error {
	db, provider, err := open(ownerURL)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// Pending says how many migrations the database has yet to see.
func Pending(ctx context.Context, ownerURL string) (int, error) {
	db, provider, err := open(ownerURL)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	states, err := provider.Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("migration status: %w", err)
	}
	n := 0
	for _, s := range states {
		if s.State == goose.StatePending {
			n++
		}
	}
	return n, nil
}

func open(ownerURL string) (*sql.DB, *goose.Provider, error) {
	cfg, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return nil, nil, fmt.Errorf("migrate: %w", err)
	}
	// Session lock: the server frees it when this process dies in the middle.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 600)) // ask again each second, for ten minutes
	if err != nil {
		return nil, nil, fmt.Errorf("migrate: %w", err)
	}
	db := stdlib.OpenDB(*cfg)
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		db.Close()
		return nil, nil, fmt.Errorf("migrate: %w", err)
	}
	return db, provider, nil
}
