// Package nemesis breaks a cluster in every way that it can think of while others
// work on it: chaos with plain clients, eos with chains of transactions. It keeps
// the journal of what was done and what was found.
//
// # The cluster
//
// Real broker processes with a real ZooKeeper, as brokertest starts them. Before
// each broker stands a door, a proxy on an address of its own, and that address is
// what the broker advertises; another stands between each broker and ZooKeeper.
// Whoever connects through a door is found by asking the kernel which process has
// the other end of the connection open, so every pair of brokers, each broker and
// ZooKeeper, and each broker and the clients have a link that can be cut in one
// direction or both, or made slow, without root. A cut stops bytes where they are:
// nobody hears of it. When it heals, what it held goes on, late, or is lost with its
// connections, as the schedule says.
//
// # The schedule
//
// Draw makes it of a seed alone, so a seed is a schedule. Faults overlap; every half
// minute comes a rest, at which all is healed and the workload looks at what has become
// of the cluster. What the brokers make of a schedule
// depends on timing and is not the same twice: "controller" and "leader" are found out
// when their step comes. The history's file holds the schedule, the steps as
// they were done or why not, the anomalies and the counts; a schedule is played again
// from it, cut down by hand if one likes.
//
// # Members
//
// Clients with processes of their own are killed, stopped and started, too, and each has
// links of its own. A workload says which there are (Members), and which roles of
// brokers can be sought out beside controller and leader.
package nemesis
