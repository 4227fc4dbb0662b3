// Package zkbulk reads many znodes of ZooKeeper at once.
//
// The client library sends and takes in one request at a time, each with system calls and goroutines
// of its own: a controller that takes over ten thousand partitions waits for seconds. Here all
// requests go out in as few writes as they fit into, over a connection and under a session
// that are there for nothing else, and the answers, which a server gives in the order of the requests,
// are read from one buffer. The server may be another than the one that the library talks to, and
// behind it: so a sync comes before the first read, and what is read is at least as new as all that
// was written by anybody before the call.
package zkbulk
