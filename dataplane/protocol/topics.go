package protocol

import "penstock/tenants"

// The topics that brokers keep for themselves. Kafka's own names are fixed by its
// clients and tools.
const (
	OffsetsTopic      = "__consumer_offsets"
	TransactionsTopic = "__transaction_state"
	UsageTopic        = tenants.UsageTopic
)

// InternalTopic says whether only brokers write to the topic and change it.
func InternalTopic(topic string) bool {
	return topic == OffsetsTopic || topic == TransactionsTopic || topic == UsageTopic
}
