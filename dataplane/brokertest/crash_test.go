package brokertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"
)

var crashKills = flag.Int("crash.kills", 6, "rounds of kill -9 in TestCrashKilledBrokerKeepsWhatItAcknowledged")

// acknowledged counts the records of a producer with acks=1, by partition.
type acknowledged struct {
	mu     sync.Mutex
	values map[string]bool
	failed error
	stop   context.CancelFunc
	done   chan struct{}
}

// produceLeaderAcks writes to a topic until it is told to stop: acks=1, no retries that
// a kill could make into doubles, so that each answer tells of one write.
func produceLeaderAcks(c *Cluster, topic string, size int) *acknowledged {
	ctx, stop := context.WithCancel(context.Background())
	a := &acknowledged{values: map[string]bool{}, stop: stop, done: make(chan struct{})}
	cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.ProducerLinger(0),
		kgo.RecordRetries(0), kgo.MetadataMinAge(50*time.Millisecond), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.DialTimeout(time.Second))
	pad := strings.Repeat("x", size)
	c.t.Cleanup(stop)
	go func() {
		defer close(a.done)
		for i := 0; ctx.Err() == nil; i++ {
			v := fmt.Sprintf("%09d %s", i, pad)
			one, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := cl.ProduceSync(one, &kgo.Record{Value: []byte(v)}).FirstErr()
			cancel()
			a.mu.Lock()
			if err == nil {
				a.values[v[:9]] = true
			} else {
				a.failed = err
			}
			a.mu.Unlock()
		}
	}()
	return a
}

func (a *acknowledged) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.values)
}

// verify reads the topic until all that was acknowledged has come.
func (a *acknowledged) verify(t *testing.T, c *Cluster, topic string) {
	t.Helper()
	a.stop()
	<-a.done
	cl := c.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	missing, n := map[string]bool{}, len(a.values)
	for v := range a.values {
		missing[v] = true
	}
	next := map[int32]int64{}
	for len(missing) > 0 {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%d of %d acknowledged records are missing: %v", len(missing), n, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset != next[r.Partition] {
				t.Errorf("partition %d: offset %d comes after %d", r.Partition, r.Offset, next[r.Partition]-1)
			}
			next[r.Partition] = r.Offset + 1
			delete(missing, string(r.Value[:9]))
		})
	}
	t.Logf("all %d acknowledged records are there", n)
}

// TestCrashKilledBrokerKeepsWhatItAcknowledged kills a single broker again and again
// under a load that rolls segments all the time. The page cache outlives the process:
// nothing that was acknowledged, by the leader alone, may be gone.
func TestCrashKilledBrokerKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Settings: []string{"num.recovery.threads.per.data.dir=2", "log.flush.offset.checkpoint.interval.ms=100", "log.index.interval.bytes=300"}})
	c.CreateTopic("ledger", 4, 1, "segment.bytes=8000", "file.delete.delay.ms=0")
	n := c.Brokers[0]
	a := produceLeaderAcks(c, "ledger", 200)
	for range *crashKills {
		before := a.count()
		Await(t, 20*time.Second, "records acknowledged", func() error {
			if got := a.count() - before; got < 50 {
				return fmt.Errorf("%d", got)
			}
			return nil
		})
		time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond) // the random moment
		n.Kill()
		n.Start()
	}
	a.verify(t, c, "ledger")
	if said, err := os.ReadFile(n.logFile()); err != nil || strings.Count(string(said), `msg="recovered logs"`) < *crashKills || strings.Contains(string(said), "damaged") {
		t.Errorf("the broker does not say what it recovered, or found damage: %v", err)
	}
}

// TestCrashFullDisk gives a broker a file system of its own that fills up. It must not
// acknowledge what does not fit, must say why it ends, and have all that it
// acknowledged when there is room again.
func TestCrashFullDisk(t *testing.T) {
	t.Parallel()
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("cannot mount a small file system, which takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c := Start(t, Options{Settings: []string{"log.dirs=" + filepath.Join(mount, "data"), "log.flush.offset.checkpoint.interval.ms=200"}})
	c.CreateTopic("ledger", 2, 1, "segment.bytes=200000")
	n := c.Brokers[0]
	a := produceLeaderAcks(c, "ledger", 20_000)
	select {
	case <-n.end:
	case <-time.After(40 * time.Second):
		t.Fatalf("the disk is full, and the broker lives on; %d records acknowledged", a.count())
	}
	n.mu.Lock()
	err := n.err
	n.mu.Unlock()
	said, rerr := os.ReadFile(n.logFile())
	if err == nil || rerr != nil || !strings.Contains(string(said), "no space left on device") {
		t.Errorf("ended with %v, and does not say that the disk is full", errors.Join(err, rerr))
	}
	a.stop()
	<-a.done
	if a.count() == 0 || a.failed == nil {
		t.Fatalf("%d records acknowledged, %v", a.count(), a.failed)
	}
	if err := unix.Mount("tmpfs", mount, "tmpfs", unix.MS_REMOUNT, "size=100m"); err != nil {
		t.Fatal(err)
	}
	n.Start()
	b := produceLeaderAcks(c, "ledger", 20_000)
	Await(t, 20*time.Second, "records acknowledged again", func() error {
		if b.count() < 20 {
			return fmt.Errorf("%d", b.count())
		}
		return nil
	})
	b.stop()
	<-b.done
	a.verify(t, c, "ledger")
}
