package partition

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
)

// Replica ids of ListOffsets that are not a broker's.
const (
	consumerID = -1
	debugID    = -2
)

// ListOffsets answers for one timestamp (ms since 1970, or one of the special
// ones). replicaID is -1 for a consumer, who sees up to the high watermark (or
// last stable offset); others see to the end of the log.
//
// Errors: the ones of a fetch, and OFFSET_NOT_AVAILABLE right after an election
// while the high watermark lies before the leader's epoch (KIP-207): an answer
// then could be lower than one given before. UNSUPPORTED_VERSION for
// timestamps that are not known.
func (m *Manager) ListOffsets(tp TopicPartition, timestamp int64, readCommitted bool, currentLeaderEpoch, replicaID int32) (OffsetResult, error) {
	none := OffsetResult{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
	p := m.Partition(tp)
	if p == nil {
		return none, m.absent(tp)
	}
	p.state.Lock()
	err := p.mayQuery(currentLeaderEpoch)
	bound, epoch, started := p.hw, p.leaderEpoch, p.hw >= p.epochStart
	switch {
	case replicaID != consumerID:
		bound, started = p.end, true
	case readCommitted:
		bound = p.lastStable()
	}
	p.state.Unlock()
	if err != nil {
		return none, err
	}
	switch timestamp {
	case LatestTimestamp:
		if !started {
			return none, kerr.OffsetNotAvailable
		}
		return OffsetResult{Offset: bound, Timestamp: -1, LeaderEpoch: epoch}, nil
	case EarliestTimestamp, EarliestLocal:
		r := OffsetResult{Offset: p.log().StartOffset(), Timestamp: -1, LeaderEpoch: -1}
		if e, ok := p.log().EpochAt(r.Offset); ok {
			r.LeaderEpoch = e
		}
		return r, nil
	case LatestTiered:
		return none, nil
	}
	if timestamp < 0 && timestamp != MaxTimestamp {
		return none, kerr.UnsupportedVersion
	}
	var r OffsetResult
	var found bool
	for log := (*commitlog.Log)(nil); log != p.log(); { // again, if the replica moved meanwhile
		if log = p.log(); timestamp == MaxTimestamp {
			r.Offset, r.Timestamp, r.LeaderEpoch, found, err = log.MaxTimestampOffset()
		} else {
			r.Offset, r.Timestamp, r.LeaderEpoch, found, err = log.OffsetForTimestamp(timestamp, bound)
		}
	}
	switch {
	case err != nil:
		return none, p.broken(err)
	case found && r.Offset < bound:
		return r, nil
	case !started:
		return none, kerr.OffsetNotAvailable
	default:
		return none, nil
	}
}

// EpochEndOffset answers OffsetForLeaderEpoch: the largest epoch not above the
// one asked for, and where it ends in this leader's log; -1, -1 if undefined.
func (m *Manager) EpochEndOffset(tp TopicPartition, currentLeaderEpoch, epoch int32) (foundEpoch int32, end int64, err error) {
	p := m.Partition(tp)
	if p == nil {
		return -1, -1, m.absent(tp)
	}
	p.state.Lock()
	defer p.state.Unlock()
	if err := p.mayQuery(currentLeaderEpoch); err != nil {
		return -1, -1, err
	}
	foundEpoch, end = p.log().EndOffsetForEpoch(epoch)
	return foundEpoch, end, nil
}

// mayQuery is checked with state held.
func (p *Partition) mayQuery(currentLeaderEpoch int32) error {
	if err := p.serves([16]byte{}); err != nil {
		return err
	}
	if err := p.checkEpoch(currentLeaderEpoch); err != nil {
		return err
	}
	if p.role != leader {
		return kerr.NotLeaderForPartition
	}
	return nil
}
