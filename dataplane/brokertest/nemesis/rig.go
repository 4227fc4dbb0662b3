package nemesis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/brokertest"
)

// Broker is one that can be broken.
type Broker interface {
	PID() int
	Ended() bool
	Kill()   // and waits until it is gone
	Launch() // and waits for nothing
	Signal(syscall.Signal)
}

// Rig is the cluster that is broken, and how it is reached.
type Rig struct {
	TB       testing.TB
	Journal  *Journal
	Brokers  []Broker
	First    int32               // the id of the first; the others' follow
	Seeds    []string            // where clients go
	View     *View               // a client to ask with
	Net      *Network            // nil if nothing can be cut
	Penstock *brokertest.Cluster // nil if it is another make's
}

// Options of a cluster of ours.
type Options struct {
	Brokers  int
	Settings []string // of every broker
	Binary   string   // the broker to run; empty: as it is built
	// Parties are clients' processes that have links of their own; nil: there are none.
	Parties func() map[Party]int
}

// Start starts a cluster with a door in front of each broker, and between each
// broker and ZooKeeper. All ends with the test.
func Start(t testing.TB, j *Journal, o Options) *Rig {
	t.Helper()
	r := &Rig{TB: t, Journal: j}
	targets := make([]string, o.Brokers)
	made := make(chan struct{}) // targets and r.Penstock are there
	r.Net = NewNetwork(func(remote, local *net.TCPAddr) Party {
		<-made
		pids := map[Party]int{}
		if o.Parties != nil {
			pids = o.Parties()
		}
		for i, n := range r.Penstock.Brokers {
			pids[Party(i)] = n.PID()
		}
		if owner, ok := ownerOf(remote, local, pids); ok {
			return owner
		}
		return Clients // it is this process, or one that has just been killed
	})
	t.Cleanup(r.Net.Close)
	for i := range o.Brokers {
		door, err := r.Net.Door(Party(i), func() string { <-made; return targets[i] })
		if err != nil {
			t.Fatal(err)
		}
		r.Seeds = append(r.Seeds, door)
	}
	brokertest.Start(t, brokertest.Options{
		Made:    func(c *brokertest.Cluster) { r.Penstock = c; close(made) },
		Brokers: o.Brokers, Binary: o.Binary, Ports: 1,
		Listeners: func(id int, ports []int) []string {
			targets[id] = fmt.Sprintf("127.0.0.1:%d", ports[0])
			return []string{"listeners=PLAINTEXT://" + targets[id], "advertised.listeners=PLAINTEXT://" + r.Seeds[id]}
		},
		Ensemble: func(id int, server string) string {
			door, err := r.Net.Door(ZooKeeper, func() string { return server }, Party(id))
			if err != nil {
				t.Fatal(err)
			}
			return door
		},
		Settings: append([]string{"replica.lag.time.max.ms=3000", "zookeeper.session.timeout.ms=2000", "zookeeper.connection.timeout.ms=20000", "log.segment.bytes=1048576",
			"offsets.topic.num.partitions=2", "group.min.session.timeout.ms=1000"}, o.Settings...),
	})
	for _, n := range r.Penstock.Brokers {
		r.Brokers = append(r.Brokers, n)
	}
	r.Ready()
	return r
}

// Ready makes the view, once the seeds are known.
func (r *Rig) Ready() {
	r.TB.Helper()
	v, err := NewView(r.Seeds)
	if err != nil {
		r.TB.Fatal(err)
	}
	r.TB.Cleanup(v.Client.Close)
	r.View = v
}

// IDs are the brokers' ids.
func (r *Rig) IDs() []int32 {
	var ids []int32
	for i := range r.Brokers {
		ids = append(ids, r.First+int32(i))
	}
	return ids
}

// KeepLogs copies what the brokers have logged, and their folders.
func (r *Rig) KeepLogs(to string) {
	if r.Penstock == nil {
		return
	}
	for _, n := range r.Penstock.Brokers {
		dir := filepath.Join(to, filepath.Base(n.LogDir))
		_ = os.RemoveAll(dir) // an earlier run's
		if err := os.CopyFS(dir, os.DirFS(n.LogDir)); err != nil {
			r.TB.Log(err)
		}
	}
	logs, _ := filepath.Glob(filepath.Join(r.Penstock.Dir, "broker-*.log"))
	for _, f := range logs {
		b, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(f)), b, 0o644)
		}
		if err != nil {
			r.TB.Log(err)
		}
	}
}

// Within polls until cond holds, and else makes an anomaly of it.
func (r *Rig) Within(bound time.Duration, what string, cond func() error) bool {
	var err error
	for began := time.Now(); time.Since(began) < bound; time.Sleep(50 * time.Millisecond) {
		if err = cond(); err == nil {
			return true
		}
	}
	r.Journal.Anomaly("not healed", what, -1, "not within %v: %v", bound, err)
	return false
}

// Whole asks every broker: all of them must have the same, whole replica sets. It
// notes them in replicas.
func (r *Rig) Whole(ctx context.Context, topic string, partitions int32, replicas map[TP][]int32) error {
	for _, id := range r.IDs() {
		req := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
		resp, err := Ask[*kmsg.MetadataResponse](ctx, r.View.Client, id, req)
		if err != nil {
			return fmt.Errorf("broker %d: %w", id, err)
		}
		if len(resp.Brokers) != len(r.Brokers) {
			return fmt.Errorf("broker %d knows %d brokers", id, len(resp.Brokers))
		}
		if got := len(resp.Topics[0].Partitions); got != int(partitions) {
			return fmt.Errorf("broker %d knows %d of %d partitions", id, got, partitions)
		}
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.Leader < 0 || len(p.ISR) != len(p.Replicas) {
				return fmt.Errorf("broker %d: partition %d has leader %d, ISR %v of %v, error %d", id, p.Partition, p.Leader, p.ISR, p.Replicas, p.ErrorCode)
			}
			replicas[TP{topic, p.Partition}] = slices.Clone(p.Replicas)
		}
	}
	return nil
}

// SameLogs holds the replicas' files against each other.
func (r *Rig) SameLogs(at TP, ids []int32) {
	var err error
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(100 * time.Millisecond) {
		if _, err = r.Penstock.SameLogs(at.Topic, at.Partition, ids); err == nil {
			return
		}
	}
	r.Journal.Anomaly("diverged", at.Topic, at.Partition, "%v", err)
}

// End is where a partition's log ends when all of it is committed.
func (r *Rig) End(ctx context.Context, at TP) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	listed, err := kadm.NewClient(r.View.Client).ListEndOffsets(ctx, at.Topic)
	return endOf(listed, err, at)
}

// StableEnd is a partition's last stable offset.
func (r *Rig) StableEnd(ctx context.Context, at TP) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	listed, err := kadm.NewClient(r.View.Client).ListCommittedOffsets(ctx, at.Topic)
	return endOf(listed, err, at)
}

func endOf(listed kadm.ListedOffsets, err error, at TP) (int64, error) {
	if err != nil {
		return 0, err
	}
	o, ok := listed.Lookup(at.Topic, at.Partition)
	if !ok {
		return 0, fmt.Errorf("no end of partition %d", at.Partition)
	}
	return o.Offset, o.Err
}

// Coordinator asks for the broker that coordinates a group (kind 0) or a
// transactional id (kind 1).
func Coordinator(ctx context.Context, cl *kgo.Client, key string, kind int8) (int32, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorType = key, kind
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && resp.NodeID < 0 {
		err = errors.New("no coordinator")
	}
	if err != nil {
		return -1, err
	}
	return resp.NodeID, nil
}

// Admin is a client for one change of the cluster.
func (r *Rig) Admin(ctx context.Context, fn func(context.Context, *kadm.Client) error) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.Seeds...), kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(3*time.Second), kgo.RetryTimeout(5*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return fn(ctx, kadm.NewClient(cl))
}
