// Package controller is Kafka's controller in ZooKeeper mode: the one broker of
// a cluster that decides who leads which partition.
//
// One goroutine, the loop, owns all of the controller's state. Watches,
// requests of brokers and replies to the controller's own requests reach it as
// events and are handled one after the other. What to do is decided by pure
// functions (elect.go, machine.go, assign.go); the loop writes it to ZooKeeper,
// each write bound to the controller epoch, and then queues requests for the
// brokers, one ordered queue a broker. Nothing is told to a broker that is not
// in ZooKeeper, so a successor can carry on from what it reads there.
//
// A controller that has been replaced finds out by its own writes at the
// latest: the check of the epoch's version fails, nothing is written, and it
// resigns. Brokers refuse what it may still have queued by the epoch in it.
package controller
