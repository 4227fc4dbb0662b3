package partition

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/config"
	"penstock/dataplane/protocol"
	"penstock/dataplane/purgatory"
	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// rig is a Manager of broker 1 on a disk in memory, with stubs around it.
type rig struct {
	t        *testing.T
	fs       vfs.FS
	paths    []string         // of the folders; nil: /data
	dir      *commitlog.Dir   // the first
	dirs     []*commitlog.Dir // all that could be opened
	wheel    *purgatory.Wheel
	m        *Manager
	minISR   int
	log      commitlog.Config
	alive    map[int32]bool // nil: all
	ratio    float64        // min.cleanable.dirty.ratio
	cleaner  CleanerConfig
	fault    atomic.Pointer[func(op vfs.Op, name string) error]
	keep     bool // topics have no delete in their cleanup.policy
	topicID  func(string) protocol.UUID
	prompt   bool   // PromptWatermark
	slow     string // both lists of throttled replicas
	onTopic  func() // called while a topic's configuration is being read
	fetchers fetchersStub

	mu       sync.Mutex
	changes  []ISRChange
	appends  []AppendEvent
	truncs   []int64
	commits  []int64
	leads    []string
	failures []string
}

type fetchersStub struct {
	mu  sync.Mutex
	set map[TopicPartition]FetchTarget
}

func (f *fetchersStub) Set(ts []FetchTarget) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.set == nil {
		f.set = map[TopicPartition]FetchTarget{}
	}
	for _, t := range ts {
		f.set[t.Partition.TP()] = t
	}
}

func (f *fetchersStub) Remove(tps []TopicPartition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, tp := range tps {
		delete(f.set, tp)
	}
}

func (r *rig) Submit(c ISRChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
}

// nextChange takes the oldest proposal; nil if there is none.
func (r *rig) nextChange() *ISRChange {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.changes) == 0 {
		return nil
	}
	c := r.changes[0]
	r.changes = r.changes[1:]
	return &c
}

func (c *ISRChange) agree() {
	c.Done(ISRResult{Leader: 1, LeaderEpoch: c.LeaderEpoch, ISR: c.ISR, PartitionEpoch: c.PartitionEpoch + 1}, nil)
}

// inBubble runs f with a rig in a synctest bubble.
func inBubble(t *testing.T, f func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, fs: vfs.NewMem(), minISR: 1}
		r.start()
		defer r.stop()
		f(r)
	})
}

func (r *rig) start() {
	r.t.Helper()
	if r.paths == nil {
		r.paths = []string{"/data"}
	}
	r.dirs = nil
	var offline []OfflineDir
	for _, path := range r.paths {
		dir, err := commitlog.OpenDir(r.fs, path)
		if err != nil {
			offline = append(offline, OfflineDir{path, err})
			continue
		}
		r.dirs = append(r.dirs, dir)
	}
	if len(r.dirs) == 0 {
		r.t.Fatal(offline)
	}
	r.dir, r.wheel = r.dirs[0], purgatory.NewWheel()
	var err error
	r.m, err = NewManager(context.Background(), Config{
		BrokerID: 1, BrokerEpoch: func() int64 { return 50 }, FS: r.fs, Dirs: r.dirs, Offline: offline, Wheel: r.wheel,
		ISR: r, Fetchers: &r.fetchers, TopicID: r.topicID, Cleaner: r.cleaner, PromptWatermark: r.prompt,
		Topic: func(string) TopicConfig {
			c := TopicConfig{MinISR: r.minISR, MinCleanableRatio: r.ratio, Log: r.log}
			c.Log.KeepForever = r.keep
			c.LeaderThrottled, _ = config.ParseThrottled(r.slow)
			c.FollowerThrottled = c.LeaderThrottled
			if r.onTopic != nil {
				r.onTopic()
			}
			return c
		},
		Known: func(tp TopicPartition) bool { return tp.Topic == "elsewhere" },
		Alive: func(id int32) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.alive == nil || r.alive[id]
		},
		Hooks: Hooks{
			OnAppend:     func(e AppendEvent) { r.note(func() { r.appends = append(r.appends, e) }) },
			OnTruncate:   func(_ TopicPartition, o int64) { r.note(func() { r.truncs = append(r.truncs, o) }) },
			OnCommit:     func(_ TopicPartition, o int64) { r.note(func() { r.commits = append(r.commits, o) }) },
			OnDirFailure: func(d string, _ bool, _ error) { r.note(func() { r.failures = append(r.failures, d) }) },
			OnLeadership: func(tp TopicPartition, lead bool, e int32) {
				r.note(func() { r.leads = append(r.leads, fmt.Sprint(tp, " ", lead, " ", e)) })
			},
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// kill leaves the disk as it is at this moment, as kill -9 does, for start.
func (r *rig) kill() {
	r.t.Helper()
	left, err := r.snapshot(r.fs)
	if err != nil {
		r.t.Fatal(err)
	}
	r.stop()
	r.fs = left
}

// snapshot copies the folders; an error if they change meanwhile.
func (r *rig) snapshot(of vfs.FS) (*vfs.Mem, error) {
	left := vfs.NewMem()
	var copyDir func(dir string) error
	copyDir = func(dir string) error {
		infos, err := of.ReadDir(dir)
		if err == nil {
			err = left.MkdirAll(dir)
		}
		for _, i := range infos {
			path := filepath.Join(dir, i.Name)
			if i.Dir {
				err = errors.Join(err, copyDir(path))
				continue
			}
			b, rerr := vfs.ReadFile(of, path, 1<<30)
			if rerr == nil {
				rerr = vfs.WriteFileAtomic(left, path, b)
			}
			err = errors.Join(err, rerr)
		}
		return err
	}
	var errs []error
	for _, path := range r.paths {
		errs = append(errs, copyDir(path))
	}
	return left, errors.Join(errs...)
}

func (r *rig) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *rig) stop() {
	r.t.Helper()
	_ = r.m.Close()
	r.wheel.Close()
	for _, d := range r.dirs {
		if err := d.Close(r.m.ClosedClean(d)); err != nil {
			r.t.Error(err)
		}
	}
}

func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

var (
	tpA   = TopicPartition{Topic: "a", Partition: 0}
	tpB   = TopicPartition{Topic: "b", Partition: 0}
	theID = protocol.UUID{7}
)

// order sends a LeaderAndIsr for one partition and returns its error.
func (r *rig) order(tp TopicPartition, id protocol.UUID, lead, epoch int32, isr, replicas []int32) error {
	r.t.Helper()
	return orderOne(r.t, r.m, tp, id, lead, epoch, isr, replicas)
}

// fatal is what a test and one of many seeded runs share.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

func orderOne(t fatal, m *Manager, tp TopicPartition, id protocol.UUID, lead, epoch int32, isr, replicas []int32) error {
	t.Helper()
	s := kmsg.NewLeaderAndISRRequestTopicPartition()
	s.Partition, s.ControllerEpoch, s.Leader, s.LeaderEpoch, s.ISR, s.Replicas, s.ZKVersion = tp.Partition, 1, lead, epoch, isr, replicas, 10*epoch
	ts := kmsg.NewLeaderAndISRRequestTopicState()
	ts.Topic, ts.TopicID, ts.PartitionStates = tp.Topic, id, append(ts.PartitionStates, s)
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.SetVersion(7)
	req.ControllerEpoch, req.BrokerEpoch = 1, 50
	req.TopicStates = append(req.TopicStates, ts)
	resp := m.LeaderAndISR(req)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	if len(resp.Topics) != 1 || resp.Topics[0].TopicID != id || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("answer does not match the order: %+v", resp)
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

func (r *rig) lead(tp TopicPartition, epoch int32, isr ...int32) {
	r.t.Helper()
	if err := r.order(tp, theID, 1, epoch, isr, []int32{1, 2, 3}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) follow(tp TopicPartition, leader, epoch int32) {
	r.t.Helper()
	if err := r.order(tp, theID, leader, epoch, []int32{leader}, []int32{1, 2, 3}); err != nil {
		r.t.Fatal(err)
	}
}

func batch(n int, value string) []byte { return batchAt(0, -1, n, value) }

func batchAt(base int64, epoch int32, n int, value string) []byte {
	o := recordbatch.NoProducer()
	o.BaseOffset, o.LeaderEpoch = base, epoch
	recs := make([]recordbatch.Record, n)
	for i := range recs {
		recs[i] = recordbatch.Record{Offset: base + int64(i), Timestamp: time.Now().UnixMilli(), Value: []byte(value)}
	}
	b, err := recordbatch.Build(o, recs)
	if err != nil {
		panic(err)
	}
	return b
}

// produce starts an append; the channel gets its result.
func (r *rig) produce(tp TopicPartition, acks int16, records []byte) chan AppendResult {
	ch := make(chan AppendResult, 2)
	r.m.Append(AppendRequest{Acks: acks, Timeout: time.Second, Principal: "User:p", ProduceVersion: 9, Entries: []AppendEntry{{TP: tp, Records: records}}},
		func(rs []AppendResult) { ch <- rs[0] })
	return ch
}

// put appends n records with acks=1.
func (r *rig) put(tp TopicPartition, n int, value string) AppendResult {
	r.t.Helper()
	res := <-r.produce(tp, 1, batch(n, value))
	if res.Err != nil {
		r.t.Fatal(res.Err)
	}
	return res
}

// fetchAsync starts a fetch of one partition; the channel gets its result.
func (r *rig) fetchAsync(replica int32, p FetchPart, wait time.Duration, minBytes int) chan FetchResult {
	return r.fetchAsyncIn(replica, -1, p, wait, minBytes)
}

// fetchAsyncIn is the same for a follower that tells its broker epoch.
func (r *rig) fetchAsyncIn(replica int32, epoch int64, p FetchPart, wait time.Duration, minBytes int) chan FetchResult {
	ch := make(chan FetchResult, 2)
	if p.MaxBytes == 0 {
		p.MaxBytes = 1 << 20
	}
	r.m.Fetch(FetchRequest{ReplicaID: replica, ReplicaEpoch: epoch, MaxWait: wait, MinBytes: minBytes, MaxBytes: 10 << 20, Parts: []FetchPart{p}},
		func(rs []FetchResult) { ch <- rs[0] })
	return ch
}

func from(tp TopicPartition, offset int64) FetchPart {
	return FetchPart{TP: tp, Offset: offset, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1}
}

// fetch reads at once, and closes the slice.
func (r *rig) fetch(replica int32, p FetchPart) FetchResult {
	res := <-r.fetchAsync(replica, p, 0, 0)
	res.Slice.Close()
	return res
}

func (r *rig) fetchIn(replica int32, epoch int64, p FetchPart) FetchResult {
	res := <-r.fetchAsyncIn(replica, epoch, p, 0, 0)
	res.Slice.Close()
	return res
}

func (r *rig) hw(tp TopicPartition, want int64) {
	r.t.Helper()
	if got := r.m.Partition(tp).HighWatermark(); got != want {
		r.t.Errorf("high watermark %d, want %d", got, want)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if want == nil && got == nil {
		return
	}
	if want == nil || !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func pending[T any](ch chan T) bool {
	synctest.Wait()
	return len(ch) == 0
}
