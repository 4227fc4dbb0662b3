package cluster

import "slices"

// State is where a cluster stands.
type State string

// A cluster is accepted by the API, provisioned, ready; updating while its
// brokers are changed; deleting and deleted. Failed waits for its deletion or
// for a new try.
const (
	Accepted     State = "accepted"
	Provisioning State = "provisioning"
	Ready        State = "ready"
	Updating     State = "updating"
	Deleting     State = "deleting"
	Deleted      State = "deleted"
	Failed       State = "failed"
)

// moves is the whole of what may follow what. Nothing leads out of deleted.
var moves = map[State][]State{
	Accepted:     {Provisioning, Deleting},
	Provisioning: {Ready, Failed, Deleting},
	Ready:        {Updating, Deleting},
	Updating:     {Ready, Failed, Deleting},
	Failed:       {Provisioning, Deleting},
	Deleting:     {Deleted},
	Deleted:      nil,
}

// CanMove says whether a cluster may go from one state to another.
func CanMove(from, to State) bool { return slices.Contains(moves[from], to) }

// States lists every state.
func States() []State {
	return []State{Accepted, Provisioning, Ready, Updating, Deleting, Deleted, Failed}
}

// Writable says whether desired objects inside the cluster may be changed:
// from the moment it is accepted until its deletion is asked for.
func (s State) Writable() bool {
	return s == Accepted || s == Provisioning || s == Ready || s == Updating
}
