package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake answers with the given statuses in turn, then 200 and body.
type fake struct {
	mu       sync.Mutex
	statuses []int
	body     string
	tokens   int
	calls    []*http.Request
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path == "/oauth2/token" {
		f.tokens++
		io.WriteString(w, `{"access_token":"t","token_type":"Bearer","expires_in":900}`)
		return
	}
	f.calls = append(f.calls, r)
	if len(f.statuses) > 0 {
		s := f.statuses[0]
		f.statuses = f.statuses[1:]
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(s)
		io.WriteString(w, `{"title":"no","status":`+http.StatusText(s)+`"code":"c"}`) // not even JSON
		return
	}
	io.WriteString(w, f.body)
}

func open(t *testing.T, f *fake) *client.Client {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	c := client.New(client.Config{BaseURL: srv.URL + "/", ClientID: "id", ClientSecret: "secret"})
	t.Cleanup(c.Close)
	return c
}

func TestATroubledServerIsTriedAgainWithTheSameKey(t *testing.T) {
	f := &fake{statuses: []int{503, 502, 429}, body: `{"id":"ten_1"}`}
	c := open(t, f)
	got, err := c.CreateTenant(context.Background(), wire.CreateTenant{Name: "acme"})
	if err != nil || got.ID != "ten_1" {
		t.Fatal(got, err)
	}
	if len(f.calls) != 4 || f.tokens != 1 {
		t.Fatalf("%d calls, %d tokens", len(f.calls), f.tokens)
	}
	key := f.calls[0].Header.Get("Idempotency-Key")
	for _, r := range f.calls {
		if key == "" || r.Header.Get("Idempotency-Key") != key {
			t.Error("a second try had another key: it could make a second tenant")
		}
	}
}

func TestARefusalIsNotTriedAgain(t *testing.T) {
	for _, status := range []int{400, 403, 404, 409, 412, 422, 500} {
		f := &fake{statuses: []int{status, status, status}}
		_, err := open(t, f).Tenant(context.Background(), "ten_1")
		var e *client.Error
		if !errors.As(err, &e) || e.Status != status || len(f.calls) != 1 {
			t.Errorf("%d: %v after %d calls", status, err, len(f.calls))
		}
	}
}

func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	f := &fake{statuses: []int{401}, body: `{"id":"ten_1"}`}
	if _, err := open(t, f).Tenant(context.Background(), "ten_1"); err != nil || f.tokens != 2 {
		t.Errorf("%v, %d tokens", err, f.tokens)
	}
	f = &fake{statuses: []int{401, 401, 401, 401}}
	if _, err := open(t, f).Tenant(context.Background(), "ten_1"); err == nil || len(f.calls) != 2 {
		t.Errorf("%v after %d calls", err, len(f.calls))
	}
}

func TestAServerThatIsAwayIsWaitedForUntilTheContextEnds(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	addr := srv.URL
	srv.Close()
	c := client.New(client.Config{BaseURL: addr, ClientID: "id", ClientSecret: "secret", Retries: 1000})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Tenant(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestAllPagesAreRead(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/oauth2/token", (&fake{}).ServeHTTP)
	mux.HandleFunc("/v1/clusters", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			io.WriteString(w, `{"items":[{"id":"a"}],"next":"two"}`)
		case "two":
			io.WriteString(w, `{"items":[{"id":"b"}]}`)
		}
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	c := client.New(client.Config{BaseURL: srv.URL, ClientID: "id", ClientSecret: "secret"})
	defer c.Close()
	got, err := c.Clusters(context.Background())
	if err != nil || len(got) != 2 || got[1].ID != "b" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAWaitEndsWhenOnlyAnotherWishCanHelp(t *testing.T) {
	f := &fake{body: `{"name":"x","status":{"applied":false,"problem":{"title":"INVALID_CONFIG","detail":"retention.ms","retryable":false}}}`}
	_, err := open(t, f).WaitTopic(context.Background(), "clu_1", "x")
	var e *client.StatusError
	if !errors.As(err, &e) || e.Problem.Title != "INVALID_CONFIG" {
		t.Errorf("%v", err)
	}
	f = &fake{body: `{"id":"clu_1","status":{"state":"failed","problem":{"title":"no ports"}}}`}
	if _, err := open(t, f).WaitCluster(context.Background(), "clu_1"); !errors.As(err, &e) || e.State != "failed" || e.Problem.Title != "no ports" {
		t.Errorf("%v", err)
	}
}
