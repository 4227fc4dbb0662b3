package coordination

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/dataplane/coordination/zktest"
)

func TestMain(m *testing.M) { zktest.Main(m, func() error { return goleak.Find() }) }

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB, cfg Config) *Client {
	t.Helper()
	c, err := Connect(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// proxied is a client whose session the test can end and whose connection it
// can cut.
func proxied(t testing.TB, path string) (*Client, *zktest.Proxy) {
	t.Helper()
	p := zktest.NewProxy(t, zktest.Shared(t))
	return connect(t, Config{Connect: p.Addr() + path, SessionTimeout: 30 * time.Second}), p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func recv[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(15 * time.Second):
		t.Fatalf("nothing came: %s", what)
		panic("unreachable")
	}
}

// to replaces a config, whatever it was.
func to(config map[string]string) func(map[string]string) (map[string]string, error) {
	return func(map[string]string) (map[string]string, error) { return config, nil }
}
