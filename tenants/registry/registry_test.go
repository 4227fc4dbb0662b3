package registry_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"penstock/migrations/pgtest"
	"penstock/tenants"
	"penstock/tenants/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

func open(t *testing.T, conns int32) (*registry.DB, *pgx.Conn) {
	t.Helper()
	pg := pgtest.New(t)
	db, err := registry.Open(context.Background(), registry.OpenConfig{URL: pg.OwnerURL, MaxConns: conns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db, pg.Admin(t)
}

func newTenant(t *testing.T, db *registry.DB, name string) (id, account string) {
	t.Helper()
	ctx := context.Background()
	if err := db.AsWorker(ctx, func(tx pgx.Tx) error {
		p, err := registry.GetPlan(ctx, tx, "developer")
		if err != nil {
			return err
		}
		tn, err := registry.CreateTenant(ctx, tx, name, p.ID)
		if err != nil {
			return err
		}
		id = tn.ID
		a, err := registry.CreateAccount(ctx, tx, id, "automation", "admin")
		if err != nil {
			return err
		}
		account = a.ID
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return id, account
}

func TestATenantsBindingEndsWithItsTransaction(t *testing.T) {
	db, _ := open(t, 1) // one connection: the next caller gets the same
	ctx := context.Background()
	a, _ := newTenant(t, db, "alpha")
	b, _ := newTenant(t, db, "beta")
	count := func(tx pgx.Tx) (n int) {
		t.Helper()
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM accounts`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	failed := errors.New("rolled back")
	for _, end := range []error{nil, failed} {
		if err := db.AsTenant(ctx, a, func(tx pgx.Tx) error {
			if n := count(tx); n != 1 {
				t.Errorf("alpha sees %d accounts", n)
			}
			return end
		}); !errors.Is(err, end) {
			t.Fatal(err)
		}
		if err := db.AsTenant(ctx, tenants.NewID("ten"), func(tx pgx.Tx) error {
			if n := count(tx); n != 0 {
				t.Errorf("a stranger sees %d accounts", n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.AsTenant(ctx, "", func(pgx.Tx) error { return nil }); err == nil {
		t.Error("AsTenant without a tenant is allowed")
	}
	// RESET ROLE leads back to the role, not to the owner; the owner is out of reach by it.
	if err := db.AsTenant(ctx, b, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `RESET ROLE`); err != nil {
			return err
		}
		var role string
		if err := tx.QueryRow(ctx, `SELECT current_user`).Scan(&role); err != nil || role != registry.RoleAPI {
			t.Errorf("after RESET ROLE: %s, %v", role, err)
		}
		if n := count(tx); n != 1 {
			t.Errorf("after RESET ROLE: %d accounts", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestTheAPIRoleMayNotDoTheWorkersWork(t *testing.T) {
	db, _ := open(t, 2)
	a, _ := newTenant(t, db, "alpha")
	ctx := context.Background()
	for _, q := range []string{
		`SELECT * FROM signing_keys`, `SELECT * FROM operators`, `UPDATE tenants SET plan_id = 'plan_x'`, `DELETE FROM audit`,
		`UPDATE audit SET actor = 'x'`, `INSERT INTO usage_counters SELECT * FROM usage_counters`, `UPDATE cluster_brokers SET state = 'removed'`,
		`INSERT INTO plans VALUES ('p', 'p', '{}')`, `ALTER TABLE accounts DISABLE ROW LEVEL SECURITY`, `TRUNCATE accounts`,
	} {
		if err := db.AsTenant(ctx, a, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, q); return err }); err == nil {
			t.Errorf("%s: allowed", q)
		}
	}
}

func TestThereAreNeverThreeLiveSecrets(t *testing.T) {
	db, _ := open(t, 8)
	ctx := context.Background()
	a, account := newTenant(t, db, "alpha")
	owner := registry.Owner{AccountID: account}
	var mu sync.Mutex
	var made []string
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := db.AsTenant(ctx, a, func(tx pgx.Tx) error {
				_, plain, err := registry.AddSecret(ctx, tx, a, owner, 0)
				if err == nil {
					mu.Lock()
					made = append(made, plain)
					mu.Unlock()
				}
				return err
			})
			if err != nil && !errors.Is(err, registry.ErrTooMany) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(made) != registry.MaxSecrets {
		t.Fatalf("%d secrets", len(made))
	}
	for _, plain := range made {
		if err := db.AsWorker(ctx, func(tx pgx.Tx) error {
			c, err := registry.Authenticate(ctx, tx, account, plain)
			if err == nil && (c.Kind != registry.KindAccount || c.TenantID != a || c.Role != "admin") {
				t.Errorf("%+v", c)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}

func TestAnExpiredSecretIsDeadAndMakesRoom(t *testing.T) {
	db, admin := open(t, 2)
	ctx := context.Background()
	a, account := newTenant(t, db, "alpha")
	owner := registry.Owner{AccountID: account}
	var plain string
	add := func() error {
		return db.AsTenant(ctx, a, func(tx pgx.Tx) (err error) {
			_, plain, err = registry.AddSecret(ctx, tx, a, owner, time.Hour)
			return err
		})
	}
	for range 2 {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.Exec(ctx, `UPDATE secrets SET expires_at = now() - interval '1 second'`); err != nil {
		t.Fatal(err)
	}
	if err := db.AsWorker(ctx, func(tx pgx.Tx) error { _, err := registry.Authenticate(ctx, tx, account, plain); return err }); !errors.Is(err, registry.ErrBadClient) {
		t.Errorf("expired secret: %v", err)
	}
	if err := add(); err != nil {
		t.Errorf("no room beside expired secrets: %v", err)
	}
}

func TestSecretsLookLikeSecretsAndAreNotStored(t *testing.T) {
	form := regexp.MustCompile(`^pks_[0-9a-hjkmnp-tv-z]{59}$`)
	seen := map[string]bool{}
	for range 100 {
		s := registry.NewSecret()
		if !form.MatchString(s) || seen[s] {
			t.Fatalf("%q", s)
		}
		seen[s] = true
	}
}

func TestTheKeyFileIsMadeOnceAndKeptPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	sealers := make([]*registry.Sealer, 8)
	var wg sync.WaitGroup
	for i := range sealers {
		wg.Go(func() {
			s, err := registry.OpenKeyFile(path)
			if err != nil {
				t.Error(err)
			}
			sealers[i] = s
		})
	}
	wg.Wait()
	sealed := sealers[0].Seal([]byte("hello"), "greeting")
	for _, s := range sealers {
		if plain, err := s.Open(sealed, "greeting"); err != nil || string(plain) != "hello" {
			t.Errorf("starts at once made different keys: %v", err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 32 {
		t.Errorf("%v %v", info, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.OpenKeyFile(path); err == nil {
		t.Error("a key file that all may read is taken")
	}
}

func TestASealedValueOpensOnlyWhereItBelongs(t *testing.T) {
	s, err := registry.NewSealer(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	sealed := s.Seal([]byte("hello"), "here")
	if bytes.Contains(sealed, []byte("hello")) {
		t.Fatal("not sealed")
	}
	if _, err := s.Open(sealed, "there"); err == nil {
		t.Error("opened for another purpose")
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := s.Open(bad, "here"); err == nil {
			t.Errorf("opened with byte %d flipped", i)
		}
		if _, err := s.Open(sealed[:i], "here"); err == nil {
			t.Errorf("opened when cut to %d bytes", i)
		}
	}
}

func FuzzOpenTakesAnyBytes(f *testing.F) {
	s, err := registry.NewSealer(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.Seal([]byte("hello"), "here"))
	f.Add([]byte{})
	f.Add([]byte{1})
	f.Add(make([]byte, 29))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if plain, err := s.Open(sealed, "elsewhere"); err == nil {
			t.Fatalf("opened %q", plain)
		}
	})
}
