// Package protocol is Kafka's wire as far as kmsg leaves it to a broker:
// request and response headers, the table of what is served with its limits,
// the measure of a body before it is decoded, error codes, the hand-built Fetch
// response of the hot path, and the buffers that frames are read into.
package protocol

//go:generate go test -run TestCompatibilityDocument . -update
