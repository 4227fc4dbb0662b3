package brokertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/recordbatch"
)

var attackRounds = flag.Int("attack.rounds", 1, "rounds of TestAttackLiveTopicKeepsWhatItAcknowledged")

// placed remembers where each record was acknowledged to be. No two have one key, so
// that compaction may not take any.
type placed struct {
	mu sync.Mutex
	at map[int32]map[int64]string
}

func (l *placed) count(partition int32) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.at[partition]))
}

// startPlaced produces until stop, which waits for all answers.
func startPlaced(c *Cluster, topic string, partitions int32) (l *placed, stop func()) {
	l = &placed{at: map[int32]map[int64]string{}}
	for p := range partitions {
		l.at[p] = map[int64]string{}
	}
	cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(time.Millisecond), kgo.RecordDeliveryTimeout(2*time.Minute), kgo.ProducerBatchMaxBytes(8_000),
		kgo.ProduceRequestTimeout(5*time.Second), kgo.RequestTimeoutOverhead(2*time.Second), kgo.MetadataMinAge(100*time.Millisecond), kgo.MaxBufferedRecords(2000))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.t.Cleanup(cancel)
	pad := strings.Repeat("pad ", 40)
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			key := fmt.Sprintf("%09d", i)
			// Not with ctx: a record that is called off is on the wire all the same, and
			// its answer would come after stop.
			cl.Produce(context.Background(), &kgo.Record{Key: []byte(key), Value: []byte(pad + key)}, func(r *kgo.Record, err error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if err == nil {
					l.at[r.Partition][r.Offset] = key
				} else if !errors.Is(err, kgo.ErrClientClosed) {
					c.t.Errorf("record %s was given up: %v", key, err)
				}
			})
			if i%20 == 0 {
				time.Sleep(time.Millisecond) // a steady load, not a flood
			}
		}
	}()
	return l, func() {
		cancel()
		<-done
		if err := cl.Flush(context.Background()); err != nil {
			c.t.Fatalf("not everything was answered: %v", err)
		}
	}
}

// replicaRecords reads the keys of a replica's files by their offsets.
func replicaRecords(dir string) (map[int64]string, error) {
	data, _, err := logBytes(dir)
	if err != nil {
		return nil, err
	}
	got, end := map[int64]string{}, int64(-1)
	for b, err := range recordbatch.Split(data) {
		if err == nil && (b.BaseOffset() <= end || b.CRC() != b.ComputeCRC()) {
			err = fmt.Errorf("batch %d..%d after %d", b.BaseOffset(), b.LastOffset(), end)
		}
		if err == nil {
			end = b.LastOffset()
			err = recordbatch.Records(b, func(r recordbatch.Record) error {
				got[r.Offset] = string(r.Key)
				return nil
			})
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
	}
	return got, nil
}

// A topic in use whose settings change, whose replicas move between folders and to and
// fro, whose records are deleted and whose brokers are killed, all at once: what was
// acknowledged and not deleted is on every replica, at its offset, and no folder has
// failed.
func TestAttackLiveTopicKeepsWhatItAcknowledged(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	random := rand.New(rand.NewPCG(s, s))
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	second := t.TempDir()
	c := twoDirs(t, func(id int) string { return filepath.Join(second, fmt.Sprint("second-", id)) },
		"log.cleaner.backoff.ms=20", "log.cleaner.dedupe.buffer.size=4194304", "log.retention.check.interval.ms=300", "log.segment.delete.delay.ms=300")
	const topic, partitions = "live", 3
	c.CreateTopic(topic, partitions, 3, "min.insync.replicas=2", "segment.bytes=60000", "retention.ms=-1")
	l, stop := startPlaced(c, topic, partitions)
	adm := kadm.NewClient(c.Client())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()

	set := func(key, value string) {
		t.Helper()
		Await(t, 20*time.Second, key+"="+value, func() error {
			rs, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
			if err == nil {
				err = rs[0].Err
			}
			return err
		})
	}
	deleted := map[int32]int64{}
	change := func() {
		p := int32(random.IntN(partitions))
		switch random.IntN(6) {
		case 0:
			set("cleanup.policy", pick("delete", "compact", "compact,delete"))
		case 1:
			set("segment.bytes", pick("20000", "60000", "300000"))
		case 2:
			set("compression.type", pick("producer", "gzip", "lz4", "zstd", "snappy", "uncompressed"))
		case 3:
			set("message.timestamp.type", pick("CreateTime", "LogAppendTime"))
		case 4:
			set("min.cleanable.dirty.ratio", pick("0.01", "0.5"))
		case 5:
			low, err := c.deleteAt(topic, p, int64(float64(l.count(p))*random.Float64()*0.9))
			if err == nil {
				deleted[p] = max(deleted[p], low)
			} else if !errors.Is(err, kerr.PolicyViolation) {
				t.Logf("delete: %v", err)
			}
		}
		for range random.IntN(4) { // to and fro
			n := c.Brokers[random.IntN(3)]
			var req kadm.AlterReplicaLogDirsReq
			req.Add(pick(n.LogDir, n.SecondDir), kadm.TopicsSet{topic: {p: {}}})
			if _, err := adm.AlterBrokerReplicaLogDirs(ctx, n.ID, req); err != nil {
				t.Logf("move: %v", err)
			}
		}
	}
	for range *attackRounds {
		for range 6 {
			change()
			time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond) // any moment will do
		}
		n := c.Brokers[random.IntN(3)]
		if random.IntN(4) == 0 {
			n.Stop()
		} else {
			n.Kill()
		}
		n.Start()
		c.AwaitWhole(topic, time.Minute)
	}
	stop()
	c.AwaitWhole(topic, time.Minute)
	c.awaitMoves()
	for p := range int32(partitions) {
		for _, n := range c.Brokers {
			folder := fmt.Sprintf("%s-%d", topic, p)
			Await(t, 20*time.Second, fmt.Sprint("all of ", folder, " on broker ", n.ID), func() error {
				got, err := replicaRecords(n.replicaDir(folder)) // the cleaner may be at work
				if err != nil {
					return err
				}
				for offset, key := range l.at[p] {
					if have, ok := got[offset]; have != key && (ok || offset >= deleted[p]) {
						return fmt.Errorf("%q is at %d, %q was acknowledged", have, offset, key)
					}
				}
				return nil
			})
		}
		t.Logf("partition %d: %d records acknowledged, deleted below %d", p, len(l.at[p]), deleted[p])
	}
	for _, n := range c.Brokers {
		said, err := os.ReadFile(n.logFile())
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(said), "\n")
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "BUG") || strings.Contains(l, "level=ERROR") }); i >= 0 {
			t.Errorf("broker %d: %s", n.ID, lines[i])
		}
	}
}

// awaitMoves waits until no replica moves any more.
func (c *Cluster) awaitMoves() {
	c.t.Helper()
	Await(c.t, time.Minute, "all moves over", func() error {
		for _, n := range c.Brokers {
			for _, dir := range []string{n.LogDir, n.SecondDir} {
				if left, err := filepath.Glob(filepath.Join(dir, "*-future")); err != nil || len(left) > 0 {
					return fmt.Errorf("%v, %w", left, err)
				}
			}
		}
		return nil
	})
}
