// Package penstock is the root of a multi-tenant managed event-streaming
// service: brokers that speak the Kafka protocol under dataplane, and the
// control plane that provisions, secures and meters them under controlplane.
//
// It holds no code of its own: the house rules that every package must keep
// (layering, documentation, file size, the broker's dependencies) are tests
// beside this file.
package penstock
