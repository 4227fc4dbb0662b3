package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"penstock/internal/process"
)

// state is state.json: what must be the same at the next start.
type state struct {
	Version  int        `json:"version"`
	Ports    savedPorts `json:"ports"`
	Postgres pgState    `json:"postgres"`
	Operator credential `json:"operator"`
	Demo     demoState  `json:"demo"`
	Bare     *bareState `json:"bare,omitempty"`
}

type savedPorts struct {
	API       int `json:"api"`
	Postgres  int `json:"postgres"`
	ZooKeeper int `json:"zookeeper"`
}

type pgState struct {
	Dir      string `json:"dir"` // of its data and log
	Password string `json:"password"`
}

type bareState struct {
	Brokers int `json:"brokers"`
}

type credential struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
}

// demoState is what the demonstration has made; secrets are shown once, so they
// are kept here.
type demoState struct {
	TenantID   string     `json:"tenant_id,omitempty"`
	TenantName string     `json:"tenant_name,omitempty"`
	Tenant     credential `json:"tenant"`
	ClusterID  string     `json:"cluster_id,omitempty"`
	// Account moves the events, Bystander keeps its latency, Greedy wants more
	// than its quota.
	Account   credential `json:"account"`
	Bystander credential `json:"bystander"`
	Greedy    credential `json:"greedy"`
	// Produced says that the events have been produced, all acknowledged.
	Produced bool `json:"produced,omitempty"`
}

// folder is the state folder.
type folder string

func (f folder) path(name ...string) string {
	return filepath.Join(append([]string{string(f)}, name...)...)
}

const (
	stateFile  = "state.json"
	devFile    = "dev.json"
	lockFile   = "dev.lock"
	pidFile    = "dev.pid"
	outputFile = "dev.log"
	brokersDir = "brokers"
)

// errNoState says that the folder has never been used.
var errNoState = errors.New("no dev service has been started here")

func (f folder) load() (*state, error) {
	b, err := os.ReadFile(f.path(stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNoState
	}
	if err != nil {
		return nil, err
	}
	s := new(state)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.path(stateFile), err)
	}
	if s.Version != 1 {
		return nil, fmt.Errorf("%s is of version %d, this tool knows 1", f.path(stateFile), s.Version)
	}
	return s, nil
}

func (f folder) save(s *state) error {
	return writeJSON(f.path(stateFile), s)
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return process.WriteAtomic(path, append(b, '\n'), 0o600)
}

// Info is dev.json.
type Info struct {
	Version        int          `json:"version"`
	API            string       `json:"api,omitempty"`
	TokenURL       string       `json:"token_url,omitempty"`
	Postgres       string       `json:"postgres,omitempty"`
	ZooKeeper      string       `json:"zookeeper"`
	PIDs           PIDs         `json:"pids"`
	Operator       *credential  `json:"operator,omitempty"`
	Tenant         *InfoTenant  `json:"tenant,omitempty"`
	Cluster        *InfoCluster `json:"cluster,omitempty"`
	ServiceAccount *credential  `json:"service_account,omitempty"`
}

// PIDs are the service's own processes; 0 is one that does not run now.
type PIDs struct {
	Dev       int `json:"dev"`
	Control   int `json:"control,omitempty"`
	Postgres  int `json:"postgres,omitempty"`
	ZooKeeper int `json:"zookeeper"`
}

// InfoTenant is the demonstration's tenant and its automation's account.
type InfoTenant struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	credential
}

// InfoCluster is the demonstration's cluster.
type InfoCluster struct {
	ID               string       `json:"id,omitempty"`
	Bootstrap        string       `json:"bootstrap"`
	SecurityProtocol string       `json:"security_protocol"`
	CAFile           string       `json:"ca_file"`
	ZooKeeperConnect string       `json:"zookeeper_connect"`
	Brokers          []InfoBroker `json:"brokers"`
}

// InfoBroker is one broker; PID is 0 while it does not run.
type InfoBroker struct {
	ID      int32    `json:"id"`
	PID     int      `json:"pid"`
	Addr    string   `json:"addr"`
	Dir     string   `json:"dir"`
	LogDirs []string `json:"log_dirs"`
}

// ErrNotRunning says that no service is ready on the folder.
var ErrNotRunning = errors.New("no dev service is running here")

// ReadInfo reads dev.json of the state folder.
func ReadInfo(dir string) (*Info, error) {
	b, err := os.ReadFile(folder(dir).path(devFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNotRunning
	}
	if err != nil {
		return nil, err
	}
	in := new(Info)
	if err := json.Unmarshal(b, in); err != nil {
		return nil, fmt.Errorf("read dev.json: %w", err)
	}
	return in, nil
}
