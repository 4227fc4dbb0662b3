// Package eos has chains of clients pass records on exactly once while a nemesis
// breaks the cluster and the clients, and checks that they did.
package eos
