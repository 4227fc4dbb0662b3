package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/client"
	"penstock/migrations/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const secret = "an-operators-secret-0123456789"

// start runs a daemon and gives its address and the function that stops it.
func start(t *testing.T, dbURL, dir, listen string) (addr string, stop func()) {
	t.Helper()
	operator := filepath.Join(dir, "operator.json")
	if err := os.WriteFile(operator, []byte(`{"client_id":"fleet","client_secret":"`+secret+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"--database-url", dbURL, "--listen", listen, "--key-file", filepath.Join(dir, "key"),
		"--bootstrap-operator-file", operator})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- run(ctx, o, slog.New(slog.DiscardHandler), func(a string) { ready <- a }) }()
	select {
	case addr = <-ready:
	case err := <-ended:
		cancel()
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return addr, stop
}

func TestADaemonStartsOnAnEmptyDatabaseAndStopsCleanly(t *testing.T) {
	db, dir := pgtest.Empty(t), t.TempDir()
	addr, stop := start(t, db.OwnerURL, dir, "127.0.0.1:0")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	op := client.New(client.Config{BaseURL: "http://" + addr, ClientID: "fleet", ClientSecret: secret})
	defer op.Close()
	tn, err := op.CreateTenant(ctx, wire.CreateTenant{Name: "acme", Plan: "developer"})
	if err != nil {
		t.Fatal(err)
	}
	acc, err := op.CreateAccount(ctx, tn.ID, wire.CreateAccount{Name: "automation"})
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(client.Config{BaseURL: "http://" + addr, ClientID: acc.Secret.ClientID, ClientSecret: acc.Secret.ClientSecret})
	defer c.Close()
	co, err := c.CreateCluster(ctx, wire.CreateCluster{Name: "main"})
	if err != nil || co.Cluster.TokenURL != "http://"+addr+"/oauth2/token" || co.Cluster.Brokers != 3 {
		t.Fatalf("%+v, %v", co, err)
	}
	if _, err := op.CreateTenant(ctx, wire.CreateTenant{Name: "acme", Plan: "developer"}); !client.IsConflict(err) {
		t.Errorf("the same tenant again: %v", err)
	}

	// A stop does not wait for the calls that hold.
	held := make(chan error, 1)
	go func() {
		_, err := c.WaitTopic(ctx, co.Cluster.ID, "nothing")
		held <- err
	}()
	if err := <-held; !client.IsNotFound(err) {
		t.Errorf("waiting for nothing: %v", err)
	}
	go func() {
		_, err := c.WaitOperation(ctx, co.Operation.ID)
		held <- err
	}()
	begin := time.Now()
	stop()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
	c.Close()
	cancel()
	<-held

	// The same port, database and key file again: everything is still there.
	addr2, _ := start(t, db.OwnerURL, dir, addr)
	ctx2, cancel2 := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel2()
	again, err := c.Cluster(ctx2, co.Cluster.ID) // with the token from before the restart
	if err != nil || addr2 != addr || again.Name != "main" {
		t.Errorf("%+v, %v", again, err)
	}
	tenants, err := op.Tenants(ctx2)
	if err != nil || len(tenants) != 1 {
		t.Errorf("%+v, %v", tenants, err)
	}
}

func TestAWrongSecretIsNotTriedAgain(t *testing.T) {
	addr, _ := start(t, pgtest.New(t).OwnerURL, t.TempDir(), "127.0.0.1:0")
	c := client.New(client.Config{BaseURL: "http://" + addr, ClientID: "fleet", ClientSecret: "wrong"})
	defer c.Close()
	begin := time.Now()
	_, err := c.Tenants(context.Background())
	var te *client.TokenError
	if !errors.As(err, &te) || te.Status != http.StatusUnauthorized || te.Code != "invalid_client" || time.Since(begin) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	db := pgtest.New(t)
	addr, _ := start(t, db.OwnerURL, t.TempDir(), "127.0.0.1:0")
	o, err := parse([]string{"--database-url", db.OwnerURL, "--listen", addr})
	if err != nil {
		t.Fatal(err)
	}
	if err := run(context.Background(), o, slog.New(slog.DiscardHandler), nil); err == nil {
		t.Error("no error")
	}
}

func TestCommandLine(t *testing.T) {
	t.Setenv("PENSTOCK_DATABASE_URL", "")
	for _, args := range [][]string{{}, {"--database-url", "x", "stray"}, {"--database-url", "x", "--broker-set", "novalue"}, {"--nonsense"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
	o, err := parse([]string{"--database-url", "x", "--broker-set", "a=b", "--broker-set", "c=d=e"})
	if err != nil || len(o.BrokerSettings) != 2 || o.BrokerSettings[1] != "c=d=e" {
		t.Errorf("%+v, %v", o, err)
	}
}
