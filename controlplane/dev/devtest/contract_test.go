package devtest

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/controlplane/client"
	"penstock/controlplane/dev"
	"penstock/internal/process"
)

// file is dev.json as it was promised, member by member.
type file struct {
	Version   int    `json:"version"`
	API       string `json:"api"`
	TokenURL  string `json:"token_url"`
	Postgres  string `json:"postgres"`
	ZooKeeper string `json:"zookeeper"`
	PIDs      struct {
		Dev       int `json:"dev"`
		Control   int `json:"control"`
		Postgres  int `json:"postgres"`
		ZooKeeper int `json:"zookeeper"`
	} `json:"pids"`
	Operator secret `json:"operator"`
	Tenant   struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		secret
	} `json:"tenant"`
	Cluster struct {
		ID               string `json:"id"`
		Bootstrap        string `json:"bootstrap"`
		SecurityProtocol string `json:"security_protocol"`
		CAFile           string `json:"ca_file"`
		ZooKeeperConnect string `json:"zookeeper_connect"`
		Brokers          []struct {
			ID      int      `json:"id"`
			PID     int      `json:"pid"`
			Addr    string   `json:"addr"`
			Dir     string   `json:"dir"`
			LogDirs []string `json:"log_dirs"`
		} `json:"brokers"`
	} `json:"cluster"`
	ServiceAccount secret `json:"service_account"`
}

type secret struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
}

func (f *folder) read(t *testing.T) file {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(f.dir, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var in file
	if err := d.Decode(&in); err != nil {
		t.Fatalf("dev.json: %v\n%s", err, b)
	}
	return in
}

// testContract holds dev.json, status and the broker commands against what was
// promised.
func testContract(t *testing.T) {
	f := service(t)
	in := f.read(t)
	if fi, err := os.Stat(filepath.Join(f.dir, "dev.json")); err != nil || fi.Mode() != 0o600 {
		t.Errorf("dev.json: %v, %v", fi.Mode(), err)
	}
	c := in.Cluster
	if in.Version != 1 || !strings.HasPrefix(in.API, "http://127.0.0.1:") || in.TokenURL != in.API+"/oauth2/token" ||
		!strings.HasPrefix(in.Tenant.ID, "ten_") || in.Tenant.Name != "acme" || !strings.HasPrefix(c.ID, "clu_") ||
		!strings.HasPrefix(in.ServiceAccount.ClientID, "sa_") || c.SecurityProtocol != "SASL_PLAINTEXT" || c.CAFile != "" ||
		!strings.HasPrefix(c.ZooKeeperConnect, in.ZooKeeper+"/") || len(c.Brokers) != 3 {
		t.Errorf("dev.json: %+v", in)
	}
	if u, err := url.Parse(in.Postgres); err != nil || u.Scheme != "postgres" || u.Hostname() != "127.0.0.1" {
		t.Errorf("postgres: %q", in.Postgres)
	}
	var addrs []string
	for i, b := range c.Brokers {
		addrs = append(addrs, b.Addr)
		if b.ID != i || len(b.LogDirs) != 1 {
			t.Errorf("broker: %+v", b)
		}
		if fi, err := os.Stat(filepath.Join(b.Dir, "server.properties")); err != nil || fi.Mode() != 0o600 {
			t.Errorf("server.properties of broker %d: %v, %v", b.ID, fi, err)
		}
		if found, _ := filepath.Glob(filepath.Join(b.LogDirs[0], "earthquakes-*", "*.log")); len(found) == 0 {
			t.Errorf("no segments in the log dirs of broker %d", b.ID)
		}
	}
	if c.Bootstrap != strings.Join(addrs, ",") {
		t.Errorf("bootstrap %s, brokers at %v", c.Bootstrap, addrs)
	}
	for name, pid := range map[string]int{"dev": in.PIDs.Dev, "control": in.PIDs.Control, "postgres": in.PIDs.Postgres,
		"zookeeper": in.PIDs.ZooKeeper, "broker 0": c.Brokers[0].PID, "broker 1": c.Brokers[1].PID, "broker 2": c.Brokers[2].PID} {
		if _, err := process.Lookup(pid); err != nil {
			t.Errorf("%s has pid %d: %v", name, pid, err)
		}
	}
	for name, s := range map[string]secret{"operator": in.Operator, "tenant": in.Tenant.secret, "service account": in.ServiceAccount} {
		if _, err := client.FetchToken(t.Context(), nil, in.TokenURL, s.ClientID, s.ClientSecret, ""); err != nil {
			t.Errorf("token of the %s: %v", name, err)
		}
	}
	var s dev.Status
	if err := json.Unmarshal([]byte(f.must(t, "status", "--json")), &s); err != nil || !s.Running || !s.Ready || !s.Healthy || len(s.Parts) != 7 {
		t.Errorf("status --json: %v, %+v", err, s)
	}
	if out := f.must(t, "status"); strings.Count(out, " ok\n") != 7 {
		t.Errorf("status:\n%s", out)
	}
	for _, again := range []string{"--once", "--detach"} {
		if out, err := run(t.Context(), f, time.Minute, again); err == nil || !strings.Contains(out, "running here already") {
			t.Errorf("%s beside the running service: %v\n%s", again, err, out)
		}
	}

	// The commands wait for their effect, and dev.json follows.
	eventually := func(what string, ok func(file) bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !ok(f.read(t)); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("never in dev.json: %s", what)
			}
		}
	}
	first := c.Brokers[1].PID
	f.must(t, "broker", "kill", "1")
	if _, err := process.Lookup(first); err == nil {
		t.Error("the broker lives after its kill")
	}
	eventually("the killed broker's new pid", func(in file) bool { p := in.Cluster.Brokers[1].PID; return p != 0 && p != first })
	f.must(t, "broker", "stop", "1")
	if n := running("--config", c.Brokers[1].Dir+"/server.properties"); len(n) != 1 { // the supervisor
		t.Errorf("%d processes of the stopped broker", len(n))
	}
	eventually("the stopped broker without a pid", func(in file) bool { return in.Cluster.Brokers[1].PID == 0 })
	if out := f.must(t, "status"); !strings.Contains(out, "stopped") {
		t.Errorf("status with a stopped broker:\n%s", out)
	}
	f.must(t, "broker", "start", "1")
	f.must(t, "broker", "start", "1")
	if out, err := run(t.Context(), f, time.Minute, "broker", "stop", "7"); err == nil || !strings.Contains(out, "no broker 7") {
		t.Errorf("stop of a broker that is not there: %v\n%s", err, out)
	}
	f.healthy(t, 20*time.Second)
	old := f.read(t).PIDs
	kill9(t, old.Control)
	kill9(t, old.ZooKeeper)
	kill9(t, old.Postgres)
	eventually("new pids of control plane, PostgreSQL and ZooKeeper", func(in file) bool {
		p := in.PIDs
		return p.Dev == old.Dev && p.Control*p.Postgres*p.ZooKeeper != 0 && p.Control != old.Control && p.Postgres != old.Postgres && p.ZooKeeper != old.ZooKeeper
	})
	f.healthy(t, 30*time.Second)
}
