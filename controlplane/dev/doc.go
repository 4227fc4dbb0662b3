// Package dev is the whole service on one machine: `penstock dev`.
//
// Service starts PostgreSQL, ZooKeeper and the control plane as children, runs
// the demonstration through the public API, and keeps everything up until it is
// told to stop. Bare mode is ZooKeeper and brokers only.
//
// All state is in one folder, so that two services in two folders do not meet:
//
//	dev.lock      held while a service runs on the folder
//	dev.pid       of the service, with its start time
//	state.json    0600: ports, passwords, what the demonstration made
//	dev.json      0600: where everything is; written last, removed on stop
//	dev.log       output of a service in the background
//	log/          output of the children
//	zookeeper/    its data
//	postgres/     its data, unless the service runs as root
//	control/      the control plane's key
//	brokers/      the process engine's: CLUSTER/BROKER/server.properties, ...
//
// Nothing may be left behind, however the service ends. Three nets, one below
// the other: the service stops its children in order; the kernel kills them when
// the service dies (parent-death signal), and the brokers' supervisors watch the
// service as their lifeline; the service is a subreaper, so that what lost its
// parent falls to it and is found at the end.
package dev
