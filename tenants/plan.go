package tenants

import (
	"errors"
	"fmt"
)

// Limits is what a plan allows one tenant, or one of its clusters where said.
// Zero means none of it is allowed; there is no "unlimited".
type Limits struct {
	Clusters                   int     `json:"clusters"` // per tenant
	BrokersPerCluster          int     `json:"brokers_per_cluster"`
	TopicsPerCluster           int     `json:"topics_per_cluster"`
	PartitionsPerCluster       int     `json:"partitions_per_cluster"`   // without replicas
	ServiceAccounts            int     `json:"service_accounts"`         // per cluster
	ProduceBytesPerSecond      int64   `json:"produce_bytes_per_second"` // whole cluster
	FetchBytesPerSecond        int64   `json:"fetch_bytes_per_second"`   // whole cluster
	RequestPercentage          float64 `json:"request_percentage"`       // of one thread, whole cluster; may exceed 100
	ConnectionsPerBroker       int     `json:"connections_per_broker"`
	RetentionBytesPerPartition int64   `json:"retention_bytes_per_partition"` // bound on retention.bytes a tenant may ask for
}

// Upper bounds that keep a typing mistake from reaching a cluster.
const (
	MaxClusters    = 1000
	MaxBrokers     = 100
	MaxTopics      = 100_000
	MaxPartitions  = 200_000
	MaxAccounts    = 10_000
	MaxByteRate    = int64(1) << 40 // 1 TiB/s
	MaxRequestRate = 100_000.0
)

// ErrLimit is in the chain of every refusal because of a plan's limit.
var ErrLimit = errors.New("plan limit reached")

// DefaultLimits is the plan of tenants on one small machine.
func DefaultLimits() Limits {
	return Limits{
		Clusters: 3, BrokersPerCluster: 3, TopicsPerCluster: 100, PartitionsPerCluster: 1000, ServiceAccounts: 50,
		ProduceBytesPerSecond: 100 << 20, FetchBytesPerSecond: 200 << 20, RequestPercentage: 800,
		ConnectionsPerBroker: 2000, RetentionBytesPerPartition: 100 << 30,
	}
}

// Validate reports every field that is out of range, all at once.
func (l Limits) Validate() error {
	var errs []error
	check := func(name string, v, max int64) {
		if v < 0 || v > max {
			errs = append(errs, fmt.Errorf("%s must be between 0 and %d", name, max))
		}
	}
	check("clusters", int64(l.Clusters), MaxClusters)
	check("brokers_per_cluster", int64(l.BrokersPerCluster), MaxBrokers)
	check("topics_per_cluster", int64(l.TopicsPerCluster), MaxTopics)
	check("partitions_per_cluster", int64(l.PartitionsPerCluster), MaxPartitions)
	check("service_accounts", int64(l.ServiceAccounts), MaxAccounts)
	check("produce_bytes_per_second", l.ProduceBytesPerSecond, MaxByteRate)
	check("fetch_bytes_per_second", l.FetchBytesPerSecond, MaxByteRate)
	check("connections_per_broker", int64(l.ConnectionsPerBroker), 1_000_000)
	check("retention_bytes_per_partition", l.RetentionBytesPerPartition, int64(1)<<50)
	// The negation also catches NaN.
	if !(l.RequestPercentage >= 0 && l.RequestPercentage <= MaxRequestRate) {
		errs = append(errs, fmt.Errorf("request_percentage must be between 0 and %g", MaxRequestRate))
	}
	return errors.Join(errs...)
}

// CheckCount refuses to grow something beyond its limit: have of it exist,
// more are asked for, max are allowed. what is named in the error.
func CheckCount(what string, have, more, max int) error {
	if more < 0 || have < 0 || more > max-have {
		return fmt.Errorf("%w: %s: %d in use, %d more asked for, %d allowed", ErrLimit, what, have, more, max)
	}
	return nil
}
