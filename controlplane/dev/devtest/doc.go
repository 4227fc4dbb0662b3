// Package devtest proves what the whole service promises to those who run it:
// real binaries, a real PostgreSQL and a real ZooKeeper, driven through the
// command line, the public API and stock Kafka clients.
//
// One service is shared by all tests of a run, since its demonstration takes a
// good half minute; a test that runs alone starts it for itself.
//
//	go test ./controlplane/dev/devtest
//	go test ./controlplane/dev/devtest -run TestService/kills -rounds 50 -timeout 40m
//	make compat
package devtest
