// Package replication moves batches from leaders to this broker's followers and
// in-sync changes from this broker's leaders to the controller.
package replication
