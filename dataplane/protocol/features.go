package protocol

// The features that clients and brokers know by Kafka's names (KIP-584).
const (
	// FeatureTransactionVersion is 2 where each transaction has an epoch of its own and
	// leaders add partitions to it (KIP-890, second part).
	FeatureTransactionVersion = "transaction.version"
	// FeatureGroupVersion is 1 where the next protocol of consumer groups is served (KIP-848).
	FeatureGroupVersion = "group.version"
)

// Feature is a range of levels of which a broker can do each; level 0 is to do without.
type Feature struct {
	Name     string
	Min, Max int16
}

// features are what this broker can do; each is in force at the highest level that every
// live broker can.
var features = []Feature{
	{FeatureTransactionVersion, 0, 2},
	{FeatureGroupVersion, 0, 1},
}

// Features lists what this broker can do. It must not be changed.
func Features() []Feature { return features }
