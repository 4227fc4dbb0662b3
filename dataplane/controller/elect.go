package controller

import "slices"

// choice is the outcome of an election; a leader of noLeader means that nobody
// can be elected.
type choice struct {
	leader     int32
	isr        []int32
	recovering bool
}

const noLeader int32 = -1

// All of the following go through the replicas in assignment order. None of
// them changes its arguments.

// electNew chooses for a partition that never had a leader: all live replicas
// are in sync, having nothing.
func electNew(replicas []int32, live func(int32) bool) choice {
	isr := filter(replicas, live)
	if len(isr) == 0 {
		return choice{leader: noLeader}
	}
	return choice{leader: isr[0], isr: isr}
}

// electOffline chooses for a partition whose leader is gone: the first live
// replica in sync; if there is none and unclean is set, the first live one, at
// the price of what only the others have.
func electOffline(replicas, isr []int32, live func(int32) bool, unclean bool) choice {
	for _, r := range replicas {
		if live(r) && slices.Contains(isr, r) {
			return choice{leader: r, isr: filter(isr, live)}
		}
	}
	if unclean {
		for _, r := range replicas {
			if live(r) {
				return choice{leader: r, isr: []int32{r}, recovering: true}
			}
		}
	}
	return choice{leader: noLeader}
}

// electPreferred chooses the first replica, if it is live and in sync.
func electPreferred(replicas, isr []int32, live func(int32) bool) choice {
	if len(replicas) > 0 && live(replicas[0]) && slices.Contains(isr, replicas[0]) {
		return choice{leader: replicas[0], isr: slices.Clone(isr)}
	}
	return choice{leader: noLeader}
}

// electShutdown chooses for a partition whose leader is about to stop. up are
// the brokers that are there at all, stopping those among them that will go.
func electShutdown(replicas, isr []int32, up, stopping func(int32) bool) choice {
	for _, r := range replicas {
		if up(r) && slices.Contains(isr, r) && !stopping(r) {
			return choice{leader: r, isr: filter(isr, func(id int32) bool { return !stopping(id) })}
		}
	}
	return choice{leader: noLeader}
}

func filter(ids []int32, keep func(int32) bool) []int32 {
	out := make([]int32, 0, len(ids))
	for _, id := range ids {
		if keep(id) {
			out = append(out, id)
		}
	}
	return out
}
