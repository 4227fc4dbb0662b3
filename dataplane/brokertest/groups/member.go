package groups

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Spec is what all members of a group have in common.
type Spec struct {
	Group     string        `json:"group"`
	Protocol  Protocol      `json:"protocol"`
	Topic     string        `json:"topic"`
	Seeds     []string      `json:"seeds"`
	Session   time.Duration `json:"session"`   // KIP-848: what the brokers are set to
	Rebalance time.Duration `json:"rebalance"` //
	Commit    time.Duration `json:"commit"`    // between two commits of a member
}

// member is one incarnation: it processes what it is given and commits it.
type member struct {
	spec Spec
	name string
	log  *Log
	tap  *tap
	read *reader
	cl   *kgo.Client

	ctx  context.Context
	stop context.CancelFunc
	over chan struct{} // closed when run has returned

	mu    sync.Mutex
	next  map[int32]*position // by partition that it owns
	slow  time.Duration       // how long the next release takes
	quiet bool                // dies without a word
}

// position is how far a partition has been processed.
type position struct {
	next   int64 // what to commit, 0 before the first record
	fences int64 // reader.fences when the partition was assigned
}

func startMember(spec Spec, name, instance string, log *Log) (*member, error) {
	m := &member{spec: spec, name: name, log: log, next: map[int32]*position{}, over: make(chan struct{})}
	m.read = &reader{log: log, group: spec.Group, member: name}
	m.tap = newTap(m.read)
	m.ctx, m.stop = context.WithCancel(context.Background())
	opts := []kgo.Opt{
		kgo.SeedBrokers(spec.Seeds...), kgo.ConsumerGroup(spec.Group), kgo.ConsumeTopics(spec.Topic), kgo.ClientID(name), kgo.Dialer(m.tap.dial),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(spec.Session), kgo.RebalanceTimeout(spec.Rebalance), kgo.HeartbeatInterval(spec.Session / 8),
		kgo.OnPartitionsAssigned(m.assigned), kgo.OnPartitionsRevoked(m.revoked), kgo.OnPartitionsLost(m.lost),
		kgo.DialTimeout(2 * time.Second), kgo.RequestTimeoutOverhead(3 * time.Second), kgo.RetryTimeout(5 * time.Second),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.FetchMaxWait(time.Second), kgo.FetchMaxPartitionBytes(16 << 10), kgo.DisableClientMetrics(),
	}
	switch spec.Protocol {
	case Eager:
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	case Cooperative:
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case Consumer:
		opts = append(opts, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	if instance != "" {
		opts = append(opts, kgo.InstanceID(instance))
	}
	log.Note(Event{Kind: Started, Group: spec.Group, Member: name, Protocol: spec.Protocol, Instance: instance, Session: spec.Session, Rebalance: spec.Rebalance})
	var err error
	if m.cl, err = kgo.NewClient(opts...); err != nil {
		return nil, err
	}
	go m.run()
	return m, nil
}

func (m *member) run() {
	why := m.work()
	m.mu.Lock()
	quiet := m.quiet
	m.mu.Unlock()
	if quiet {
		m.tap.kill() // so that the client's last words are not heard
	}
	m.cl.CloseAllowingRebalance() // what it owns is released in this
	m.log.Note(Event{Kind: Ended, Group: m.spec.Group, Member: m.name, Why: why})
	close(m.over)
}

// work returns why the member ends.
func (m *member) work() string {
	lastCommit := time.Now()
	for {
		polling, cancel := context.WithTimeout(m.ctx, m.spec.Commit)
		polled := m.cl.PollRecords(polling, 100)
		cancel()
		if m.ctx.Err() != nil {
			return "it was asked to"
		}
		if m.read.replaced.Load() {
			return "another has its instance id"
		}
		m.mu.Lock()
		polled.EachRecord(func(r *kgo.Record) {
			if at := m.next[r.Partition]; at != nil {
				at.next = r.Offset + 1
			}
		})
		m.mu.Unlock()
		if time.Since(lastCommit) >= m.spec.Commit {
			if !m.commit() {
				return "a commit may still be on its way"
			}
			lastCommit = time.Now()
		}
		m.cl.AllowRebalance()
	}
}

// commit commits what was processed of the partitions that are this member's, and tells whether
// it may commit again: not after one whose fate is unknown. What it had before it was told that
// it is no member is not its own any more, also when its client keeps it: franz-go, told so while the
// application takes its time to release, joins again without saying that the rest is lost.
func (m *member) commit() bool {
	if m.read.doubtful.Load() > 0 {
		return false
	}
	m.mu.Lock()
	offsets := map[int32]kgo.EpochOffset{}
	for p, at := range m.next {
		if at.next > 0 && at.fences == m.read.fences.Load() {
			offsets[p] = kgo.EpochOffset{Epoch: -1, Offset: at.next}
		}
	}
	m.mu.Unlock()
	if len(offsets) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(m.ctx, m.spec.Session)
	defer cancel()
	m.cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{m.spec.Topic: offsets}, nil) // the tap sees what is answered
	return m.read.doubtful.Load() == 0
}

func (m *member) assigned(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	mine := parts[m.spec.Topic]
	if len(mine) == 0 {
		return
	}
	m.log.Note(Event{Kind: Owns, Group: m.spec.Group, Member: m.name, Partitions: mine})
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range mine {
		m.next[p] = &position{fences: m.read.fences.Load()}
	}
}

// revoked may take its time, like an application that finishes its work first, and commits
// what it has done.
func (m *member) revoked(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	mine := parts[m.spec.Topic]
	if len(mine) == 0 {
		return
	}
	m.mu.Lock()
	slow := m.slow
	m.slow = 0
	m.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-m.ctx.Done():
		}
	}
	m.commit()
	m.release(mine)
}

func (m *member) lost(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	m.release(parts[m.spec.Topic])
}

func (m *member) release(parts []int32) {
	if len(parts) == 0 {
		return
	}
	m.mu.Lock()
	maps.DeleteFunc(m.next, func(p int32, _ *position) bool {
		for _, gone := range parts {
			if p == gone {
				return true
			}
		}
		return false
	})
	m.mu.Unlock()
	m.log.Note(Event{Kind: Released, Group: m.spec.Group, Member: m.name, Partitions: parts})
}

// end asks the member to end; quiet: it dies, and the group hears nothing of it.
func (m *member) end(quiet bool) {
	m.mu.Lock()
	m.quiet = quiet
	m.mu.Unlock()
	if quiet {
		m.tap.kill()
	}
	m.stop()
}

var errNoMember = errors.New("no such member")
