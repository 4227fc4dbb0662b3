package devtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/client"
)

// call sends what no proper client would.
func call(t *testing.T, url, token, method string, body []byte) (int, wire.Problem) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	var p wire.Problem
	if res.StatusCode >= 400 {
		if ct := res.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/problem+json") || json.Unmarshal(b, &p) != nil || p.Code == "" {
			t.Errorf("%s %s: %d with %s: %.200s", method, url, res.StatusCode, ct, b)
		}
	}
	return res.StatusCode, p
}

// testHostile has a tenant do what he should not, and an operator what is
// clumsy: everything is refused in words, nothing is an error of the server's,
// and the service stays whole.
func testHostile(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	f := service(t)
	in := f.info(t)
	api := tenant(t, in)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	token := account{in.Tenant.ClientID, in.Tenant.ClientSecret, in.TokenURL}.token(t)
	data := account{in.ServiceAccount.ClientID, in.ServiceAccount.ClientSecret, in.TokenURL}.token(t)
	main := "/v1/clusters/" + in.Cluster.ID

	t.Run("garbage", func(t *testing.T) {
		bodies := []string{"", "null", "[]", `"x"`, "{", "\xff\xfe", `{"name":null}`, `{"name":"\u0000ab"}`, `{"name":"\ud800"}`, `{"name":"` + strings.Repeat("a", 1<<17) + `"}`,
			strings.Repeat("[", 50_000), strings.Repeat(`{"a":`, 20_000), strings.Repeat("a", 1<<20), `{"name":"ab","brokers":1e308}`, `{"name":"ab","brokers":-1}`,
			`{"name":"..","partitions":1}`, `{"name":"__consumer_offsets","partitions":1}`, `{"name":"ab","partitions":2147483648}`,
			`{"name":"ab","partitions":1,"configs":{"a\u0000":"b"}}`, `{"name":"ab","config":{"super.users":"User:x"}}`,
			`{"name":"ab","config":{"log.retention.ms":"1\nsuper.users=User:x"}}`, `{"bytes_in_per_second":9223372036854775808}`, `{"bytes_in_per_second":0}`}
		ids := []string{"x", "%00", "..%2f..%2fetc", "%ff", "%F0%9F%92%A9", "';drop%20table%20tenants;--", "%0a", "*", strings.Repeat("a", 5000)}
		for path, methods := range map[string]string{
			"/v1/clusters": "POST", main + "/topics": "POST", main + "/acls": "POST", main + "/service-accounts": "POST", "/v1/members": "POST",
			main + "/service-accounts/" + in.ServiceAccount.ClientID + "/quota": "PUT", main + "/topics/earthquakes": "PATCH",
		} {
			for _, b := range bodies {
				if b == "[]" && methods == "PATCH" || b == "null" && methods != "POST" {
					continue
				}
				if code, p := call(t, in.API+path, token, methods, []byte(b)); code < 400 || code >= 500 {
					t.Errorf("%s %s %.60q: %d %+v", methods, path, b, code, p)
				}
			}
		}
		for _, id := range ids {
			for _, path := range []string{"/v1/clusters/" + id, main + "/topics/" + id, main + "/acls/" + id, main + "/service-accounts/" + id, "/v1/operations/" + id, "/v1/tenants/" + id + "/accounts"} {
				for _, m := range []string{"GET", "DELETE"} {
					if code, p := call(t, in.API+path, token, m, nil); code < 400 || code >= 500 {
						t.Errorf("%s %s: %d %+v", m, path, code, p)
					}
				}
			}
		}
		// A token for the cluster opens no door here, nor does none.
		for _, tok := range []string{data, "", "x.y.z"} {
			if code, _ := call(t, in.API+"/v1/clusters", tok, "GET", nil); code != http.StatusUnauthorized && code != http.StatusForbidden {
				t.Errorf("list of clusters with token %.10q: %d", tok, code)
			}
		}
	})

	t.Run("refused setting", func(t *testing.T) {
		_, err := api.CreateTopic(ctx, in.Cluster.ID, wire.CreateTopic{Name: "hostile", Partitions: 1, ReplicationFactor: 3, Configs: map[string]string{"retention.ms": "soon"}})
		if err == nil {
			_, err = api.WaitTopic(ctx, in.Cluster.ID, "hostile")
		}
		if err == nil || !strings.Contains(err.Error(), "retention.ms") || !strings.Contains(err.Error(), "soon") {
			t.Errorf("the setting is not named: %v", err)
		}
		if err := api.DeleteTopic(ctx, in.Cluster.ID, "hostile"); err != nil {
			t.Errorf("delete of a topic that never was: %v", err)
		}
	})

	t.Run("twins, and deleted on the way up", func(t *testing.T) {
		var mu sync.Mutex
		var made []string
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				op, err := api.CreateCluster(ctx, wire.CreateCluster{Name: "twin", Brokers: 3})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					made = append(made, op.Cluster.ID)
				} else if !client.IsConflict(err) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(made) != 1 {
			t.Fatalf("%d clusters of one name", len(made))
		}
		time.Sleep(300 * time.Millisecond) // its brokers are being started
		gone(t, f, api, ctx, made[0])
		// The name is free again.
		op, err := api.CreateCluster(ctx, wire.CreateCluster{Name: "twin", Brokers: 1})
		if err == nil {
			_, err = api.WaitCluster(ctx, op.Cluster.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		gone(t, f, api, ctx, op.Cluster.ID)
	})

	t.Run("newcomer", func(t *testing.T) {
		lonely := filepath.Join(t.TempDir(), "penstock")
		b, err := os.ReadFile(filepath.Join(bin, "penstock"))
		if err == nil {
			err = os.WriteFile(lonely, b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		tool := filepath.Join(bin, "penstock")
		for _, c := range []struct{ tool, path, args, says string }{
			{lonely, "", "--once", "make build"},
			{tool, "/nowhere", "--once", "apt-get install zookeeper"},
			{tool, "", "--once --set num.partitions=many", "num.partitions"},
			{tool, "", "--bare --set num.partitions=many", "many"},
			{tool, "", "--once --dir " + file, "not a directory"},
		} {
			f := newFolder("newcomer")
			args := append([]string{"dev", "--dir", f.dir}, strings.Fields(c.args)...)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			cmd := exec.CommandContext(ctx, c.tool, args...)
			if c.path != "" {
				cmd.Env = []string{"PATH=" + c.path}
			}
			out, err := cmd.CombinedOutput()
			cancel()
			if err == nil || ctx.Err() == context.DeadlineExceeded || !strings.Contains(string(out), c.says) {
				t.Errorf("%s: %v, want %q in\n%s", c.args, err, c.says, out)
			}
			f.nothingLeft(t, 0, c.args)
			if err := os.RemoveAll(f.dir); err != nil {
				t.Error(err)
			}
		}
	})
	f.healthy(t, 30*time.Second)
	applied(t, api)
}
