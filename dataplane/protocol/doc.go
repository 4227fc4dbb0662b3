// Package protocol is Kafka's wire as far as kmsg leaves it to a broker:
// request and response headers, the table of supported versions, error codes,
// and the hand-built Fetch response of the hot path.
package protocol
