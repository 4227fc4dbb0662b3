// Package wire holds the bodies of the public API, snake_case JSON, shared by
// the server and the client. Fields are only ever added; a reader ignores
// fields that it does not know. Times are RFC 3339 UTC, sizes bytes, rates
// bytes a second.
package wire

import (
	"time"

	"penstock/tenants"
)

// Problem is every error's body, RFC 9457, application/problem+json.
type Problem struct {
	Type      string       `json:"type" doc:"Stable URI of the kind of problem"`
	Title     string       `json:"title"`
	Status    int          `json:"status"`
	Detail    string       `json:"detail,omitempty"`
	Code      string       `json:"code" doc:"Stable short name, such as limit-exceeded"`
	RequestID string       `json:"request_id"`
	Errors    []FieldError `json:"errors,omitempty"`
}

// FieldError names one wrong part of a request.
type FieldError struct {
	Location string `json:"location" doc:"Where, such as body.partitions"`
	Message  string `json:"message"`
}

// Page is one part of a list; Next, if not empty, is the cursor of the part after.
type Page[T any] struct {
	Items []T    `json:"items" nullable:"false"`
	Next  string `json:"next,omitempty" doc:"Cursor of the next page"`
}

// Plan is what tenants may use.
type Plan struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Limits    tenants.Limits `json:"limits"`
	CreatedAt time.Time      `json:"created_at"`
}

// CreatePlan is the body that makes a plan.
type CreatePlan struct {
	Name   string         `json:"name" minLength:"2" maxLength:"63"`
	Limits tenants.Limits `json:"limits"`
}

// Tenant is a customer.
type Tenant struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	PlanID    string    `json:"plan_id"`
	CreatedAt time.Time `json:"created_at"`
}

// CreateTenant is the body that makes a tenant.
type CreateTenant struct {
	Name string `json:"name" minLength:"2" maxLength:"63"`
	Plan string `json:"plan" minLength:"1" maxLength:"64" doc:"A plan's id or name"`
}

// Account is a tenant's automation account: it calls this API.
type Account struct {
	ID        string    `json:"id" doc:"Also its OAuth client id"`
	Name      string    `json:"name"`
	Role      string    `json:"role" enum:"admin,viewer"`
	Secrets   []Secret  `json:"secrets" nullable:"false"`
	CreatedAt time.Time `json:"created_at"`
}

// CreateAccount is the body that makes an automation account.
type CreateAccount struct {
	Name string `json:"name" minLength:"2" maxLength:"63"`
	Role string `json:"role,omitempty" enum:"admin,viewer" default:"admin"`
}

// Secret is a client secret as it shows after its creation.
type Secret struct {
	ID         string     `json:"id"`
	Prefix     string     `json:"prefix" doc:"The secret's first characters"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
	CreatedAt  time.Time  `json:"created_at"`
}

// NewSecret is a client secret at its creation, the only time it is shown.
type NewSecret struct {
	ID           string     `json:"id"`
	ClientID     string     `json:"client_id"`
	ClientSecret string     `json:"client_secret" doc:"Shown this once"`
	ExpiresAt    *time.Time `json:"expires_at,omitempty"`
}

// CreateSecret is the body that adds a secret.
type CreateSecret struct {
	ExpiresInSeconds int64 `json:"expires_in_seconds,omitempty" minimum:"0" maximum:"315360000" doc:"0: never"`
}

// NewAccount answers the creation of an automation account.
type NewAccount struct {
	Account Account   `json:"account"`
	Secret  NewSecret `json:"secret"`
}

// Member is a person of a tenant.
type Member struct {
	ID        string    `json:"id"`
	Email     string    `json:"email"`
	Role      string    `json:"role" enum:"admin,viewer"`
	CreatedAt time.Time `json:"created_at"`
}

// CreateMember is the body that adds a member.
type CreateMember struct {
	Email string `json:"email" format:"email" maxLength:"254"`
	Role  string `json:"role,omitempty" enum:"admin,viewer" default:"viewer"`
}

// StatusProblem is why something is not as wished.
type StatusProblem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Detail    string `json:"detail,omitempty"`
	Retryable bool   `json:"retryable" doc:"It is being tried again"`
}

// Cluster is a tenant's broker cluster.
type Cluster struct {
	ID               string            `json:"id"`
	Name             string            `json:"name"`
	Brokers          int               `json:"brokers"`
	Config           map[string]string `json:"config" nullable:"false"`
	Bootstrap        string            `json:"bootstrap,omitempty" doc:"host:port,host:port"`
	SecurityProtocol string            `json:"security_protocol" enum:"SASL_PLAINTEXT,SASL_SSL"`
	SASLMechanism    string            `json:"sasl_mechanism" enum:"OAUTHBEARER"`
	TokenURL         string            `json:"token_url"`
	Status           ClusterStatus     `json:"status"`
	CreatedAt        time.Time         `json:"created_at"`
	UpdatedAt        time.Time         `json:"updated_at"`
}

// ClusterStatus is how a cluster is.
type ClusterStatus struct {
	State              string         `json:"state" enum:"accepted,provisioning,ready,updating,deleting,deleted,failed"`
	Generation         int64          `json:"generation"`
	ObservedGeneration int64          `json:"observed_generation"`
	Brokers            []BrokerStatus `json:"brokers" nullable:"false"`
	Problem            *StatusProblem `json:"problem,omitempty"`
}

// BrokerStatus is how one broker is.
type BrokerStatus struct {
	ID      int32  `json:"id"`
	Address string `json:"address"`
	State   string `json:"state"`
}

// CreateCluster is the body that makes a cluster.
type CreateCluster struct {
	Name    string            `json:"name" minLength:"2" maxLength:"63"`
	Brokers int               `json:"brokers,omitempty" minimum:"1" maximum:"100" default:"3"`
	Config  map[string]string `json:"config,omitempty" maxProperties:"100" doc:"Kafka broker settings that a tenant may choose"`
}

// ClusterOperation answers the creation and deletion of a cluster.
type ClusterOperation struct {
	Cluster   Cluster   `json:"cluster"`
	Operation Operation `json:"operation"`
}

// Operation is work that goes on after the answer.
type Operation struct {
	ID         string         `json:"id"`
	Kind       string         `json:"kind"`
	ClusterID  string         `json:"cluster_id"`
	State      string         `json:"state" enum:"pending,running,succeeded,failed"`
	Step       string         `json:"step,omitempty"`
	Percent    int            `json:"percent"`
	Problem    *StatusProblem `json:"problem,omitempty"`
	CreatedAt  time.Time      `json:"created_at"`
	StartedAt  *time.Time     `json:"started_at,omitempty"`
	FinishedAt *time.Time     `json:"finished_at,omitempty"`
}

// Status is how far an object inside a cluster is enforced by the brokers.
type Status struct {
	Applied           bool           `json:"applied" doc:"The newest generation is enforced"`
	Generation        int64          `json:"generation"`
	AppliedGeneration int64          `json:"applied_generation"`
	AppliedAt         *time.Time     `json:"applied_at,omitempty"`
	Deleting          bool           `json:"deleting,omitempty"`
	Problem           *StatusProblem `json:"problem,omitempty"`
}

// Topic is a topic.
type Topic struct {
	ID                string            `json:"id"`
	Name              string            `json:"name"`
	Partitions        int               `json:"partitions"`
	ReplicationFactor int               `json:"replication_factor"`
	Configs           map[string]string `json:"configs" nullable:"false" doc:"Only what was set"`
	Status            Status            `json:"status"`
	CreatedAt         time.Time         `json:"created_at"`
	UpdatedAt         time.Time         `json:"updated_at"`
}

// CreateTopic is the body that makes a topic.
type CreateTopic struct {
	Name              string            `json:"name" minLength:"1" maxLength:"249"`
	Partitions        int               `json:"partitions,omitempty" minimum:"1" maximum:"100000" default:"1"`
	ReplicationFactor int               `json:"replication_factor,omitempty" minimum:"0" maximum:"100" doc:"0: three, or one a broker if there are fewer"`
	Configs           map[string]string `json:"configs,omitempty" maxProperties:"100"`
}

// UpdateTopic is a JSON merge patch (RFC 7396): what is left out stays, a
// config set to null goes back to its default.
type UpdateTopic struct {
	Partitions *int               `json:"partitions,omitempty" minimum:"1" maximum:"100000" doc:"May only grow"`
	Configs    map[string]*string `json:"configs,omitempty" maxProperties:"100"`
}

// ServiceAccount is an identity that logs in at a cluster's brokers.
type ServiceAccount struct {
	ID          string    `json:"id" doc:"Also its OAuth client id"`
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	ClusterID   string    `json:"cluster_id"`
	Principal   string    `json:"principal" doc:"Its name in Kafka"`
	Secrets     []Secret  `json:"secrets" nullable:"false"`
	CreatedAt   time.Time `json:"created_at"`
}

// CreateServiceAccount is the body that makes a service account.
type CreateServiceAccount struct {
	Name        string `json:"name" minLength:"2" maxLength:"63"`
	Description string `json:"description,omitempty" maxLength:"500"`
}

// NewServiceAccount answers the creation of a service account.
type NewServiceAccount struct {
	ServiceAccount ServiceAccount `json:"service_account"`
	Secret         NewSecret      `json:"secret"`
}

// Quota is what a service account may use of the whole cluster.
type Quota struct {
	ServiceAccountID  string    `json:"service_account_id"`
	BytesInPerSecond  *int64    `json:"bytes_in_per_second,omitempty"`
	BytesOutPerSecond *int64    `json:"bytes_out_per_second,omitempty"`
	RequestPercentage *float64  `json:"request_percentage,omitempty"`
	Status            Status    `json:"status"`
	UpdatedAt         time.Time `json:"updated_at"`
}

// PutQuota is the body that sets a quota; what is left out is without limit.
type PutQuota struct {
	BytesInPerSecond  *int64   `json:"bytes_in_per_second,omitempty" minimum:"1" doc:"Produced bytes, whole cluster"`
	BytesOutPerSecond *int64   `json:"bytes_out_per_second,omitempty" minimum:"1" doc:"Fetched bytes, whole cluster"`
	RequestPercentage *float64 `json:"request_percentage,omitempty" exclusiveMinimum:"0" doc:"Of one thread's time, whole cluster; may exceed 100"`
}

// ACL is an access rule of a service account.
type ACL struct {
	ID               string    `json:"id"`
	ServiceAccountID string    `json:"service_account_id"`
	Host             string    `json:"host"`
	ResourceType     string    `json:"resource_type"`
	ResourceName     string    `json:"resource_name"`
	PatternType      string    `json:"pattern_type"`
	Operation        string    `json:"operation"`
	Permission       string    `json:"permission"`
	Status           Status    `json:"status"`
	CreatedAt        time.Time `json:"created_at"`
}

// CreateACL is the body that makes an access rule.
type CreateACL struct {
	ServiceAccountID string `json:"service_account_id" maxLength:"64"`
	Host             string `json:"host,omitempty" maxLength:"64" default:"*"`
	ResourceType     string `json:"resource_type" enum:"topic,group,cluster,transactional_id"`
	ResourceName     string `json:"resource_name,omitempty" maxLength:"249" doc:"* is any; of a cluster it is left out"`
	PatternType      string `json:"pattern_type,omitempty" enum:"literal,prefixed" default:"literal"`
	Operation        string `json:"operation" enum:"all,read,write,create,delete,alter,describe,cluster_action,describe_configs,alter_configs,idempotent_write"`
	Permission       string `json:"permission,omitempty" enum:"allow,deny" default:"allow"`
}

// Usage is what a cluster's service accounts have moved since it was made.
type Usage struct {
	Entries []UsageEntry `json:"entries" nullable:"false"`
	// AsOf is when the newest counter among them was read on a broker; nil when nothing was.
	AsOf *time.Time `json:"as_of,omitempty"`
	// ReadAt is when the ledger last read the cluster's usage topic to its end.
	ReadAt *time.Time `json:"read_at,omitempty"`
}

// UsageEntry is one service account and direction.
type UsageEntry struct {
	ServiceAccountID string `json:"service_account_id"`
	Principal        string `json:"principal"`
	Direction        string `json:"direction" enum:"in,out"`
	Bytes            int64  `json:"bytes"`
	Records          int64  `json:"records"`
	Requests         int64  `json:"requests"`
}
