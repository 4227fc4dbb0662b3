package controller

import "slices"

// partitionStatus is where a partition stands in its life.
type partitionStatus uint8

const (
	partitionNonExistent partitionStatus = iota // not yet, or not any more
	partitionNew                                // has replicas, never had a leader
	partitionOnline                             // has a leader that lives
	partitionOffline                            // had a leader
)

// replicaStatus is where a replica stands in its life.
type replicaStatus uint8

const (
	replicaNonExistent replicaStatus = iota
	replicaNew
	replicaOnline             // its broker lives and was told about it
	replicaOffline            // its broker is gone
	replicaDeletionStarted    // its broker was told to delete it
	replicaDeletionSuccessful // its broker has deleted it
	replicaDeletionIneligible // can not be deleted now: its broker is gone or failed to
)

// partitionFrom and replicaFrom list the states that each state may follow.
var partitionFrom = map[partitionStatus][]partitionStatus{
	partitionNonExistent: {partitionOffline},
	partitionNew:         {partitionNonExistent},
	partitionOnline:      {partitionNew, partitionOnline, partitionOffline},
	partitionOffline:     {partitionNew, partitionOnline, partitionOffline},
}

var replicaFrom = map[replicaStatus][]replicaStatus{
	replicaNonExistent:        {replicaDeletionSuccessful},
	replicaNew:                {replicaNonExistent},
	replicaOnline:             {replicaNew, replicaOnline, replicaOffline, replicaDeletionIneligible},
	replicaOffline:            {replicaNew, replicaOnline, replicaOffline, replicaDeletionIneligible},
	replicaDeletionStarted:    {replicaOffline},
	replicaDeletionSuccessful: {replicaDeletionStarted},
	replicaDeletionIneligible: {replicaOffline, replicaDeletionStarted},
}

func (s partitionStatus) mayBecome(next partitionStatus) bool {
	return slices.Contains(partitionFrom[next], s)
}

func (s replicaStatus) mayBecome(next replicaStatus) bool {
	return slices.Contains(replicaFrom[next], s)
}

var partitionNames = [...]string{"NonExistent", "New", "Online", "Offline"}

var replicaNames = [...]string{"NonExistent", "New", "Online", "Offline", "DeletionStarted", "DeletionSuccessful", "DeletionIneligible"}

func (s partitionStatus) String() string { return partitionNames[s] }
func (s replicaStatus) String() string   { return replicaNames[s] }
