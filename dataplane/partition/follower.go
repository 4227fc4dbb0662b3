package partition

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/planted"
	"penstock/dataplane/recordbatch"
)

// ErrStale refuses a fetcher's work: the replica no longer follows in that
// epoch, or its log has moved on.
var ErrStale = errors.New("replica no longer follows at this epoch and offset")

// follow makes this replica a follower.
func (p *Partition) follow(s *kmsg.LeaderAndISRRequestTopicPartition) {
	p.append.Lock()
	p.state.Lock()
	p.version.Add(1)
	ended := false
	if p.role == leader && s.Leader >= 0 {
		p.setHanding(true)
	} else if s.Leader < 0 {
		ended = p.setHanding(false) // there is nobody to wait for
	}
	p.role = follower
	p.leaderID = s.Leader
	p.assign(s)
	p.isr, p.remotes, p.leaderHW = nil, nil, -1
	p.end = p.log().EndOffset()
	p.state.Unlock()
	p.append.Unlock()
	if ended {
		p.m.handovers.Check(p)
	}
	p.m.produces.Check(p)
	p.m.fetches.Check(p)
}

// FetchState is where a follower wants to go on.
type FetchState struct {
	Offset int64
	// LastEpoch is the epoch of the last record, -1 if the log knows none.
	LastEpoch      int32
	LogStartOffset int64
}

// FetchState tells where the follower goes on copying; ErrStale if it does not
// follow in that epoch any more.
//
// The log start that the leader is told is one that a kill cannot take back: it
// answers a DeleteRecords when all have told it theirs.
func (p *Partition) FetchState(leaderEpoch int32) (FetchState, error) {
	p.state.Lock()
	unsaved := p.savedStart < p.log().StartOffset()
	p.state.Unlock()
	if unsaved {
		if err := p.m.writeStarts(p.dir()); err != nil {
			return FetchState{}, p.broken(err)
		}
	}
	p.state.Lock()
	defer p.state.Unlock()
	if err := p.follows(leaderEpoch); err != nil {
		return FetchState{}, err
	}
	st := FetchState{Offset: p.end, LastEpoch: -1, LogStartOffset: min(p.savedStart, p.log().StartOffset())}
	if e, ok := p.log().LatestEpoch(); ok {
		st.LastEpoch = e
	}
	return st, nil
}

// follows is checked with state held.
func (p *Partition) follows(leaderEpoch int32) error {
	if p.failed != nil {
		return kerr.KafkaStorageError
	}
	if p.role != follower || p.leaderEpoch != leaderEpoch {
		return ErrStale
	}
	return nil
}

// AppendFollower appends what the leader sent for a fetch at offset (records
// may be empty) and takes over its high watermark and log start. The records
// are neither kept nor copied. It returns the number of bytes appended.
//
// Batches of an epoch newer than the leader's are left out, see Partition.
func (p *Partition) AppendFollower(leaderEpoch int32, offset int64, records []byte, leaderHW, leaderStart int64) (int, error) {
	records, err := sound(records, leaderEpoch)
	if err != nil {
		return 0, fmt.Errorf("%s at %d: %w", p.tp, offset, err)
	}
	n, committed, err := p.takeIn(leaderEpoch, offset, records, leaderHW, leaderStart)
	if committed || n > 0 {
		p.changed(committed)
	}
	return n, err
}

func (p *Partition) takeIn(leaderEpoch int32, offset int64, records []byte, leaderHW, leaderStart int64) (n int, committed bool, err error) {
	p.append.Lock()
	defer p.append.Unlock()
	p.state.Lock()
	err = p.follows(leaderEpoch)
	if err == nil && p.end != offset {
		err = ErrStale
	}
	p.state.Unlock()
	if err != nil {
		return 0, false, err
	}
	if len(records) > 0 {
		if n, err = p.copyIn(records); err != nil {
			return 0, false, err
		}
	}
	if n > 0 && p.throttledFollower() {
		p.m.followerRate.count(n, p.m.now())
	}
	end := p.log().EndOffset()
	p.state.Lock()
	p.end, p.leaderHW = end, leaderHW
	if hw := min(leaderHW, end); hw > p.hw {
		p.setHighWatermark(hw)
		committed = true
	}
	hw := p.hw
	p.state.Unlock()
	if leaderStart > p.log().StartOffset() && leaderStart <= hw {
		if _, err := p.log().IncrementStartOffset(leaderStart); err != nil {
			return n, committed, p.broken(err)
		}
	}
	return n, committed, nil
}

// copyIn is entered with the append lock held.
func (p *Partition) copyIn(records []byte) (int, error) {
	n, err := appendCopied(p.log(), records)
	if err != nil && !errors.Is(err, commitlog.ErrOffsetMismatch) {
		err = p.broken(err)
	}
	return n, err
}

// appendCopied appends what was read from another copy of the log.
func appendCopied(log *commitlog.Log, records []byte) (int, error) {
	info, err := log.AppendFollower(records)
	var gap *commitlog.OffsetMismatchError
	if errors.As(err, &gap) && log.StartOffset() == gap.End && gap.First < gap.End && gap.Last >= gap.End {
		// The log is empty and the first batch begins before the other's log start.
		if err = log.TruncateFullyAndStartAt(gap.First); err == nil {
			info, err = log.AppendFollower(records)
		}
		if err == nil {
			_, err = log.IncrementStartOffset(gap.End)
		}
	}
	if err != nil {
		return 0, err
	}
	return info.Bytes, nil
}

// sound cuts records to whole batches of epochs up to the leader's. The log checks
// their checksums before it writes.
func sound(records []byte, leaderEpoch int32) ([]byte, error) {
	rest := records
	for len(rest) > 0 {
		b, next, err := recordbatch.Next(rest)
		if errors.Is(err, recordbatch.ErrShort) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w (%w)", err, kerr.CorruptMessage)
		}
		if b.LeaderEpoch() > leaderEpoch {
			break
		}
		rest = next
	}
	return records[:len(records)-len(rest)], nil
}

// TruncateDiverging cuts the follower's log after the leader said that it
// knows the largest epoch up to the follower's last as (epoch, end). If the
// follower does not know that epoch either, it goes back to the end of its next
// lower one and the next fetch asks again, until both agree (KIP-279).
func (p *Partition) TruncateDiverging(leaderEpoch, epoch int32, end int64) error {
	return p.truncate(leaderEpoch, func() int64 {
		own := p.log().EndOffset()
		if end < 0 {
			return p.hw
		}
		found, foundEnd := p.log().EndOffsetForEpoch(epoch)
		switch {
		case epoch < 0 || found < 0:
			return min(end, own)
		case found != epoch:
			return min(foundEnd, own)
		default:
			return min(foundEnd, end, own)
		}
	})
}

// TruncateTo cuts the follower's log to the offset.
func (p *Partition) TruncateTo(leaderEpoch int32, offset int64) error {
	return p.truncate(leaderEpoch, func() int64 { return offset })
}

// TruncateToHighWatermark drops what is not known to be committed.
func (p *Partition) TruncateToHighWatermark(leaderEpoch int32) error {
	return p.truncate(leaderEpoch, func() int64 { return p.hw })
}

// truncate calls to with both locks held.
func (p *Partition) truncate(leaderEpoch int32, to func() int64) error {
	p.append.Lock()
	defer p.append.Unlock()
	p.state.Lock()
	if err := p.follows(leaderEpoch); err != nil {
		p.state.Unlock()
		return err
	}
	offset := max(to(), p.log().StartOffset())
	if planted.Bug == planted.NoTruncation {
		offset = p.log().EndOffset()
	}
	cut := offset < p.log().EndOffset()
	if cut {
		if offset < p.hw {
			p.m.logger.Warn("truncating below the high watermark", "partition", p.tp.String(), "to", offset, "hw", p.hw)
		}
		p.version.Add(1)
		p.log().BeforeTruncation()
		p.end = min(p.end, offset)
		p.hw = min(p.hw, offset)
	}
	p.state.Unlock()

	// With nothing to cut the log may still hold the start of an epoch in which
	// this replica led and wrote nothing; it has to go, or both sides would never agree.
	var err error
	if cut {
		if err = p.dirtyFrom(offset); err == nil && p.log().RecoveryPoint() > offset {
			// On disk before the cut: a log that ends below its checkpoint counts as damaged.
			if err = p.log().LowerRecoveryPoint(offset); err == nil {
				err = p.m.writeRecoveryPoints(p.dir())
			}
		}
	}
	if err == nil {
		_, err = p.log().TruncateTo(offset)
	}
	if !cut || err != nil {
		return p.broken(err)
	}
	p.truncateCopy(func(l *commitlog.Log) error {
		if l.EndOffset() <= offset {
			return nil
		}
		_, err := l.TruncateTo(max(offset, l.StartOffset()))
		return err
	})
	return p.truncated(offset, err)
}

// TruncateFullyAndStartAt empties the follower's log, since the leader has
// nothing left of what would follow it.
func (p *Partition) TruncateFullyAndStartAt(leaderEpoch int32, offset int64) error {
	p.append.Lock()
	defer p.append.Unlock()
	p.state.Lock()
	if err := p.follows(leaderEpoch); err != nil {
		p.state.Unlock()
		return err
	}
	p.version.Add(1)
	p.log().BeforeTruncation()
	p.end, p.hw = offset, offset
	p.state.Unlock()
	err := p.dirtyFrom(offset)
	if err == nil && p.log().RecoveryPoint() > 0 { // as in truncate
		if err = p.log().LowerRecoveryPoint(0); err == nil {
			err = p.m.writeRecoveryPoints(p.dir())
		}
	}
	if err == nil {
		err = p.log().TruncateFullyAndStartAt(offset)
	}
	p.truncateCopy(func(l *commitlog.Log) error { return l.TruncateFullyAndStartAt(offset) })
	return p.truncated(offset, err)
}

// truncated finishes a truncation: with the append lock held.
func (p *Partition) truncated(offset int64, err error) error {
	if err == nil {
		// The end may be below offset, the start may have gone back or up.
		err = p.m.writeRecoveryPoints(p.dir())
	}
	if err != nil {
		return p.broken(err)
	}
	end := p.log().EndOffset() // below offset if a batch went whole, of which a part may have been clean
	if err := p.dirtyFrom(end); err != nil {
		return p.broken(err)
	}
	p.state.Lock()
	p.end = end
	p.setHighWatermark(min(p.hw, end))
	p.state.Unlock()
	if f := p.m.cfg.Hooks.OnTruncate; f != nil {
		f(p.tp, min(offset, end))
	}
	return nil
}
