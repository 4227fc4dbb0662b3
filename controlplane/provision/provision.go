// Package provision brings brokers into being and takes them away again.
//
// Engine is the seam: the reconciler says what one broker shall be, an engine
// makes it so. Every call is idempotent and may be repeated after a crash at any
// point: names, ports and secrets of a broker follow from its spec or are kept
// in its own folder, so that "make" is "find or make".
//
// Process is the engine of one machine: a broker is an operating-system process
// below a supervisor of its own, in a folder of its own, on loopback.
package provision

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"penstock/internal/process"
)

// ErrInvalid says that a spec can never work, however often it is tried.
var ErrInvalid = errors.New("invalid broker spec")

// Ref names one broker of one cluster.
type Ref struct {
	ClusterID string // clu_…, or any name that is safe as a folder's name
	BrokerID  int32  // Kafka's broker.id, 0 or more
}

func (r Ref) String() string { return r.ClusterID + "/" + strconv.Itoa(int(r.BrokerID)) }

// Chroot is where in ZooKeeper a cluster lives.
func Chroot(clusterID string) string { return "/clusters/" + clusterID }

func (r Ref) validate() error {
	if r.ClusterID == "" || r.ClusterID != filepath.Base(r.ClusterID) || r.ClusterID[0] == '.' {
		return fmt.Errorf("%w: cluster id %q", ErrInvalid, r.ClusterID)
	}
	if r.BrokerID < 0 {
		return fmt.Errorf("%w: broker id %d", ErrInvalid, r.BrokerID)
	}
	return nil
}

// BrokerSpec is all that decides what one broker is.
type BrokerSpec struct {
	Ref
	// Brokers is the size of the cluster; replication defaults follow from it.
	Brokers int
	// ZooKeeper is host:port[,host:port...] without a chroot; Chroot is the
	// cluster's own, such as /clusters/clu_….
	ZooKeeper, Chroot string
	// Security is nil for a broker with neither authentication nor
	// authorization (the bare mode of the development service).
	Security *Security
	// Port asks for this port for clients; 0 takes any free one.
	Port int
	// Avoid are ports that are spoken for, though nobody may listen on them now.
	Avoid []int
	// Set holds more lines for server.properties; they win over all others.
	Set []Property
}

// Security is what a broker needs to know who may talk to it.
type Security struct {
	// Issuer, Audience and JWKSURL check clients' tokens.
	Issuer, Audience, JWKSURL string
	// Secrets are the cluster's own.
	Secrets Secrets
}

// Property is one line of server.properties.
type Property struct{ Key, Value string }

// State is what an engine sees of a broker.
type State string

const (
	// Absent: nothing of it is there.
	Absent State = "absent"
	// Halted: its folder is there, but neither broker nor supervisor run.
	Halted State = "halted"
	// Stopped: an operator stopped it; its supervisor keeps it so.
	Stopped State = "stopped"
	// Down: its supervisor is about to start it (again).
	Down State = "down"
	// Running: the process lives. Whether it serves is brokeradmin's question.
	Running State = "running"
)

// BrokerStatus is one broker as it is.
type BrokerStatus struct {
	State State
	// Broker and Supervisor are zero unless they live.
	Broker, Supervisor process.ID
	// ClientAddr and InternalAddr are host:port of its listeners; InternalAddr is
	// empty without Security.
	ClientAddr, InternalAddr string
	// Dir is the folder of server.properties; LogDirs hold the partitions.
	Dir     string
	LogDirs []string
	// Outdated says that it runs with other settings than the spec given to
	// Ensure. It is left alone: a roll needs more than one broker's view.
	Outdated bool
}

// Endpoints are where a broker is reached.
type Endpoints struct {
	Host         string
	ClientPort   int
	InternalPort int // 0 without Security
}

// Engine runs brokers somewhere.
type Engine interface {
	// Reserve decides where the broker will be reached, before it is started, and
	// keeps to it: asked again, it answers the same unless the place was lost.
	Reserve(ctx context.Context, s BrokerSpec) (Endpoints, error)
	// Ensure makes the broker as the spec says, starts it if nothing watches over
	// it, and returns its status. It does not wait until the broker serves.
	Ensure(ctx context.Context, s BrokerSpec) (BrokerStatus, error)
	// Status looks and changes nothing. A broker that is not there is Absent, not
	// an error.
	Status(ctx context.Context, r Ref) (BrokerStatus, error)
	// Stop ends the broker with a controlled shutdown, and its supervisor. Its
	// data stays. The next Ensure starts it again.
	Stop(ctx context.Context, r Ref) error
	// Remove stops the broker and deletes everything of it, data included.
	Remove(ctx context.Context, r Ref) error
}
