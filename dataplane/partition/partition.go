package partition

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/planted"
	"penstock/dataplane/protocol"
)

type role uint8

const (
	idle     role = iota // the log is here, the controller has not spoken
	leader               // serves
	follower             // copies
)

// Partition is this broker's replica of one partition. What it promises:
//
//   - records at one offset never differ between a leader and a reader's copy
//     below the high watermark;
//   - the high watermark of a leader never goes back;
//   - nothing is appended under a leader epoch that the replica has left: an
//     append holds the append lock from its check of the role to its end, and a
//     change of role takes that lock.
//
// A range handed to a reader is a piece of file and is sent later, when the
// role may have changed and the file been truncated. So a reader checks version
// after the read, and a follower refuses batches of an epoch newer than its
// leader's (see AppendFollower), which is what it would get from a leader that
// has become a follower in between.
type Partition struct {
	m  *Manager
	tp TopicPartition
	at atomic.Pointer[place]

	config atomic.Pointer[TopicConfig]
	// version moves with every change of role or truncation, before it happens.
	version atomic.Uint64

	append sync.Mutex

	state          sync.Mutex
	role           role
	topicID        protocol.UUID
	leaderID       int32
	leaderEpoch    int32
	partitionEpoch int32
	term           uint64 // counts the times this replica became leader
	epochStart     int64  // of a leader: the log's end when its epoch began
	replicas       []int32
	isr            []int32 // as committed by the controller
	change         *isrChange
	handing        bool // led here until now, see handover.go
	remotes        []remote
	end            int64 // log end offset that readers may see
	hw             int64
	leaderHW       int64   // of a follower: as its leader said last, -1 before it has
	cleaned        int64   // the log is clean up to here, neverCleaned at first
	cuts           uint64  // counts truncations of the log
	savedStart     int64   // the log start that a kill cannot take back
	future         *future // the copy that is to take this replica's place, nil if it is not moving
	failed         error
}

// place is where a replica lies. It changes when the replica moves to another
// folder, under both locks: who has read from a log that was closed meanwhile
// looks here whether it is still the replica's.
type place struct {
	dir *commitlog.Dir
	log *commitlog.Log
}

func (p *Partition) dir() *commitlog.Dir { return p.at.Load().dir }
func (p *Partition) log() *commitlog.Log { return p.at.Load().log }

// Read is Log().Read, and goes to the log that has taken its place if the replica
// moves to another folder meanwhile.
func (p *Partition) Read(from int64, maxBytes int, upTo int64, minOneBatch bool) (commitlog.Slice, error) {
	for {
		log := p.log()
		s, err := log.Read(from, maxBytes, upTo, minOneBatch)
		if err == nil || p.log() == log {
			return s, err
		}
	}
}

// ReadCommitted is the same for Log().ReadCommitted.
func (p *Partition) ReadCommitted(from int64, maxBytes int, upTo int64, minOneBatch bool) (commitlog.Slice, []commitlog.AbortedTransaction, error) {
	for {
		log := p.log()
		s, aborted, err := log.ReadCommitted(from, maxBytes, upTo, minOneBatch)
		if err == nil || p.log() == log {
			return s, aborted, err
		}
	}
}

// remote is what a leader knows of another replica.
type remote struct {
	id            int32
	epoch         int64 // of the broker's life that all of this is about; -1 if it does not tell
	end           int64 // -1 until its first fetch under this leader
	start         int64 // its log start, -1 until its first fetch
	lastCaughtUp  time.Time
	lastFetch     time.Time
	endAtLastSeen int64     // the leader's end at lastFetch
	toldHW        int64     // the high watermark in our last answer
	refused       time.Time // when the controller would not have it in the set; zero once it is proposed again
}

// unseen is a replica that has not fetched yet, in the life given.
func unseen(id int32, epoch int64) remote {
	return remote{id: id, epoch: epoch, end: -1, start: -1, endAtLastSeen: -1}
}

func (r *remote) caughtUp(leaderEnd int64, now time.Time, lag time.Duration) bool {
	return r.end == leaderEnd || now.Sub(r.lastCaughtUp) <= lag
}

func newPartition(m *Manager, tp TopicPartition, dir *commitlog.Dir, log *commitlog.Log, hw int64) *Partition {
	p := &Partition{m: m, tp: tp, leaderID: -1, leaderEpoch: -1, cleaned: neverCleaned}
	p.at.Store(&place{dir, log})
	p.end = log.EndOffset()
	p.setHighWatermark(min(max(hw, log.StartOffset()), p.end))
	p.savedStart = log.StartOffset()
	return p
}

// TP names the partition.
func (p *Partition) TP() TopicPartition { return p.tp }

// TopicID is the topic's id, zero if unknown.
func (p *Partition) TopicID() protocol.UUID {
	p.state.Lock()
	defer p.state.Unlock()
	return p.topicID
}

// HighWatermark is the offset below which all is committed as far as known here.
func (p *Partition) HighWatermark() int64 {
	p.state.Lock()
	defer p.state.Unlock()
	return p.hw
}

// LastStableOffset is where readers of committed data end.
func (p *Partition) LastStableOffset() int64 {
	p.state.Lock()
	defer p.state.Unlock()
	return p.lastStable()
}

// EndOffset is the offset of the next record.
func (p *Partition) EndOffset() int64 {
	p.state.Lock()
	defer p.state.Unlock()
	return p.end
}

// StartOffset is the first offset that may be read.
func (p *Partition) StartOffset() int64 { return p.log().StartOffset() }

// Leader is the leader's broker id and its epoch, -1 if unknown.
func (p *Partition) Leader() (id, epoch int32) {
	p.state.Lock()
	defer p.state.Unlock()
	return p.leaderID, p.leaderEpoch
}

// IsLeader reports whether this replica leads.
func (p *Partition) IsLeader() bool {
	p.state.Lock()
	defer p.state.Unlock()
	return p.role == leader
}

// ISR is the in-sync set as committed by the controller; nil on a follower.
func (p *Partition) ISR() []int32 {
	p.state.Lock()
	defer p.state.Unlock()
	return slices.Clone(p.isr)
}

// Log is the commit log as of now, for coordinators and tests, who may not change
// it. It is closed when the replica moves to another folder; see Read.
func (p *Partition) Log() *commitlog.Log { return p.log() }

// checkEpoch is KIP-320's fencing. With state held.
func (p *Partition) checkEpoch(current int32) error {
	switch {
	case current < 0 || current == p.leaderEpoch:
		return nil
	case current < p.leaderEpoch:
		return kerr.FencedLeaderEpoch
	default:
		return kerr.UnknownLeaderEpoch
	}
}

// serves checks that requests may be answered at all. With state held.
func (p *Partition) serves(id protocol.UUID) error {
	if p.failed != nil {
		return kerr.KafkaStorageError
	}
	if p.role == idle {
		return p.m.absent(p.tp)
	}
	if id != (protocol.UUID{}) && p.topicID != (protocol.UUID{}) && id != p.topicID {
		return kerr.InconsistentTopicID
	}
	return nil
}

// minISR is the effective min.insync.replicas. With state held.
func (p *Partition) minISR() int {
	return min(max(p.config.Load().MinISR, 1), len(p.replicas))
}

// advance raises a leader's high watermark to the smallest end among the
// maximal in-sync set and those about to join it; it reports whether it moved.
// With state held.
//
// A replica that has caught up but is not in the set yet holds the watermark
// back, too: else it could never reach it under steady load and would stay
// out. One that the controller would not have (it is stopping, or was started anew) holds
// nothing back until it is proposed again. Below min.insync.replicas nothing is committed.
func (p *Partition) advance(now time.Time) bool {
	if p.role != leader || len(p.isr) < p.minISR() {
		return false
	}
	hw := p.end
	set := p.maximalISR()
	spare := planted.Bug == planted.EarlyWatermark
	for i := range p.remotes {
		r := &p.remotes[i]
		if r.end >= hw {
			continue
		}
		if spare { // it does not wait for one of its followers
			spare = false
			continue
		}
		if slices.Contains(set, r.id) || (r.caughtUp(p.end, now, p.m.lag) && r.refused.IsZero() && p.m.alive(r.id)) {
			hw = r.end
		}
	}
	if hw <= p.hw {
		return false
	}
	p.setHighWatermark(hw)
	return true
}

// setHighWatermark tells the log, too, before anybody can be woken by it. With
// state held.
func (p *Partition) setHighWatermark(hw int64) {
	p.hw = hw
	p.log().SetHighWatermark(hw)
}

// lastStable is the last stable offset: below it every transaction is decided and
// committed. With state held: so the log is asked after the high watermark was
// read, and what it says holds for it.
func (p *Partition) lastStable() int64 {
	if planted.Bug == planted.StableAtWatermark {
		return p.hw
	}
	return min(p.hw, max(p.log().FirstUnstableOffset(), p.log().StartOffset()))
}

// maximalISR is the set that acknowledgements count: the committed one, with
// what a proposal in flight may add. With state held.
func (p *Partition) maximalISR() []int32 {
	if p.change != nil {
		return p.change.maximal
	}
	return p.isr
}

// acked tells whether a produce up to required (exclusive) that was appended
// in the given term is settled, and how. Called by waiting operations.
func (p *Partition) acked(required int64, term uint64) (bool, error) {
	p.state.Lock()
	defer p.state.Unlock()
	switch {
	case p.failed != nil:
		return true, kerr.KafkaStorageError
	case p.role != leader || p.term != term:
		// Leadership lost in between may have meant truncation, even if it is back.
		return true, kerr.NotLeaderForPartition
	case p.hw < required:
		return false, nil
	case len(p.maximalISR()) < p.minISR():
		return true, kerr.NotEnoughReplicasAfterAppend
	default:
		return true, nil
	}
}

// changed wakes whoever waits for the partition. Called with no lock held.
func (p *Partition) changed(committed bool) {
	if committed {
		if f := p.m.cfg.Hooks.OnCommit; f != nil {
			f(p.tp, p.HighWatermark())
		}
		p.m.produces.Check(p)
	}
	p.m.fetches.Check(p)
}

// broken turns an error of the log into one for the wire; a failure of the
// storage takes the whole folder offline.
func (p *Partition) broken(err error) error {
	if err == nil {
		return nil
	}
	var ke *kerr.Error
	if errors.As(err, &ke) && ke.Code != kerr.KafkaStorageError.Code {
		return err
	}
	if errors.Is(err, commitlog.ErrClosed) || p.log().Closed() {
		// Deleted or moved meanwhile: what went wrong then tells nothing of the folder.
		return commitlog.ErrClosed
	}
	p.m.failDir(p.dir(), err)
	return fmt.Errorf("%s: %w (%w)", p.tp, err, kerr.KafkaStorageError)
}

// fail takes the replica offline until the broker is started again.
func (p *Partition) fail(err error) {
	p.state.Lock()
	defer p.state.Unlock()
	p.version.Add(1)
	p.failed = err
	p.setHanding(false)
}
