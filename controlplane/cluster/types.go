package cluster

import (
	"errors"
	"time"
)

// Errors of this package.
var (
	ErrNotFound = errors.New("not found")
	ErrFenced   = errors.New("the claim on the cluster has been lost")
	ErrMove     = errors.New("the cluster's state does not allow this")
	ErrConflict = errors.New("already exists")
	ErrStale    = errors.New("changed meanwhile")
)

// Problem is why something failed, the body of an RFC 9457 answer.
type Problem struct {
	Type   string `json:"type"` // stable, such as "urn:penstock:broker-start-failed"
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"` // fit for the tenant's eyes
	// Retryable: the reconciler will try again by itself. Without it those who wait are told at
	// once, since only another wish can help (a config value that the brokers refuse).
	Retryable bool `json:"retryable"`
}

// Cluster is one row of clusters.
type Cluster struct {
	TenantID            string
	ID                  string
	Name                string
	Brokers             int               // how many are wanted, ids 0 to Brokers-1
	Config              map[string]string // Kafka broker settings that the tenant chose
	State               State
	Generation          int64 // of the wish
	ObservedGeneration  int64 // the generation that State speaks of
	Bootstrap           string
	InternalBootstrap   string // the control plane's own listener
	ZooKeeperConnect    string
	SealedCredentials   []byte // see registry.Sealer; nil until the first provisioning step
	Problem             *Problem
	NextReconcileAt     time.Time
	Attempts            int // failures in a row
	DeletionRequestedAt *time.Time
	CreatedAt           time.Time
	UpdatedAt           time.Time
}

// Broker is one row of cluster_brokers.
type Broker struct {
	ID           int32
	Host         string
	ClientPort   int
	InternalPort int
	Desired      string // DesiredRunning, DesiredStopped, DesiredRemoved
	State        string // BrokerPlanned to BrokerRemoved
	Status       BrokerStatus
	Generation   int64
	UpdatedAt    time.Time
}

// What is wanted of a broker.
const (
	DesiredRunning = "running"
	DesiredStopped = "stopped"
	DesiredRemoved = "removed"
)

// What a broker was last seen to be.
const (
	BrokerPlanned  = "planned"
	BrokerStarting = "starting"
	BrokerRunning  = "running"
	BrokerStopped  = "stopped"
	BrokerFailed   = "failed"
	BrokerRemoved  = "removed"
)

// BrokerStatus is what the engine saw of a broker.
type BrokerStatus struct {
	PID        int    `json:"pid,omitempty"` // the broker, not its supervisor
	StartTime  string `json:"start_time,omitempty"`
	Supervisor int    `json:"supervisor,omitempty"`
	Dir        string `json:"dir,omitempty"`
	LogDir     string `json:"log_dir,omitempty"`
	Message    string `json:"message,omitempty"`
}

// Applied tells how far a desired object is enforced.
type Applied struct {
	Generation          int64
	AppliedGeneration   int64
	AppliedAt           *time.Time
	Problem             *Problem
	DeletionRequestedAt *time.Time
}

// Enforced says whether the brokers have the newest generation.
func (a Applied) Enforced() bool {
	return a.DeletionRequestedAt == nil && a.AppliedGeneration == a.Generation
}

// Topic is a desired topic.
type Topic struct {
	ClusterID         string
	ID                string
	Name              string
	Partitions        int
	ReplicationFactor int
	Configs           map[string]string // only what the tenant set
	KafkaTopicID      string
	CreatedAt         time.Time
	UpdatedAt         time.Time
	Applied
}

// Quota is what one service account may use of the whole cluster; nil means no limit.
type Quota struct {
	ClusterID         string
	ServiceAccountID  string
	BytesInPerSecond  *int64
	BytesOutPerSecond *int64
	RequestPercentage *float64 // of one thread's time; 200 is two threads
	CreatedAt         time.Time
	UpdatedAt         time.Time
	Applied
}

// ACL is one access rule of a service account; its principal is User:<ServiceAccountID>.
type ACL struct {
	ClusterID        string
	ID               string
	ServiceAccountID string
	Host             string // "*" or an address
	ResourceType     string // topic, group, cluster, transactional_id
	ResourceName     string
	PatternType      string // literal, prefixed
	Operation        string // all, read, write, create, delete, alter, describe, cluster_action, describe_configs, alter_configs, idempotent_write
	Permission       string // allow, deny
	CreatedAt        time.Time
	Applied
}

// Desired is all that is wanted inside a cluster, at one moment.
//
// An access rule that was deleted and made anew has two rows that mean the same on the brokers:
// do the deletions first, and leave a rule on the brokers that a live row still wants.
type Desired struct {
	Topics []Topic
	Quotas []Quota
	ACLs   []ACL
	// Revocations come before all the rest.
	Revocations []Revocation
	// GoneAccounts are service accounts whose deletion was asked for: their quota and rules are
	// asked to go as well and are in the lists above; AccountGone ends it.
	GoneAccounts []string
}

// Operation is a piece of work that outlives the call that asked for it.
type Operation struct {
	ID         string
	Kind       string // OpClusterCreate, OpClusterDelete
	ClusterID  string
	State      string // pending, running, succeeded, failed
	Step       string
	Percent    int
	Problem    *Problem
	CreatedAt  time.Time
	StartedAt  *time.Time
	FinishedAt *time.Time
}

// Kinds of operations.
const (
	OpClusterCreate = "cluster.create"
	OpClusterDelete = "cluster.delete"
)
