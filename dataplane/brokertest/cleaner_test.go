package brokertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const cleanerKeys = 40

// cleanerLoad writes rising numbers to a few keys, and now and then a tombstone to a key
// of its own, until it is stopped; it tells what was acknowledged last of each key.
func cleanerLoad(t *testing.T, c *Cluster, topic string) (stop func() (acked map[string]int, sent int)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var mu sync.Mutex
	acked, sent := map[string]int{}, 0
	cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.RecordDeliveryTimeout(2*time.Minute), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(200))
	pad := strings.Repeat("x", 200)
	go func() {
		defer close(done)
		for i := 1; ctx.Err() == nil; i++ {
			key := fmt.Sprint("k", i%cleanerKeys)
			r := &kgo.Record{Key: []byte(key), Value: fmt.Appendf(nil, "%d %s", i, pad)}
			if i%10 == 0 {
				cl.Produce(context.Background(), &kgo.Record{Key: fmt.Append(nil, "gone", i%7)}, nil)
			}
			cl.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("record %d was given up: %v", i, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				acked[key] = i
			})
			sent = i
			if i%100 == 0 {
				time.Sleep(time.Millisecond) // a steady load, not a flood
			}
		}
	}()
	return func() (map[string]int, int) {
		cancel()
		<-done
		flush, end := context.WithTimeout(context.Background(), time.Minute)
		defer end()
		if err := cl.Flush(flush); err != nil {
			t.Fatal(err)
		}
		return acked, sent
	}
}

// cleanerRead reads a topic from its start to its end as a consumer does.
func cleanerRead(t *testing.T, c *Cluster, topic string) (newest map[string]int, records int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var end kadm.ListedOffset
	Await(t, 30*time.Second, "the end of the topic", func() error { // a broker that has just started may not lead yet
		ends, err := kadm.NewClient(c.Client()).ListEndOffsets(ctx, topic)
		if err == nil {
			var ok bool
			if end, ok = ends.Lookup(topic, 0); !ok {
				return errors.New("the broker does not know the topic")
			}
			err = end.Err
		}
		return err
	})
	// What ends the log may be a batch without records; what is read then says nothing.
	cl := c.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	newest = map[string]int{}
	for last := int64(-1); last < end.Offset-1; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("reading stops at %d of %d: %v", last, end.Offset, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset <= last {
				t.Fatalf("offset %d after %d", r.Offset, last)
			}
			last = r.Offset
			records++
			if r.Value == nil {
				return
			}
			n, err := strconv.Atoi(strings.Fields(string(r.Value))[0])
			if err != nil || n <= newest[string(r.Key)] {
				t.Fatalf("%s is %d after %d: %v", r.Key, n, newest[string(r.Key)], err)
			}
			newest[string(r.Key)] = n
		})
	}
	return newest, records
}

// cleanerBytes is the size of the log files that match, but for those on their way out.
func cleanerBytes(t *testing.T, logDir, pattern string) (n int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(logDir, pattern, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if errors.Is(err, os.ErrNotExist) {
			continue // replaced meanwhile
		}
		if err != nil {
			t.Fatal(err)
		}
		n += st.Size()
	}
	return n
}

// A compacted topic under load, with a consumer that reads it again and again and a
// group that commits all the time, on a broker that is killed while it compacts: of every
// key the newest acknowledged value is there, in order, nobody is stuck, and neither the
// topic nor __consumer_offsets grows with what was written.
func TestCleanerKilledWhileItCompactsLosesNothing(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	random := rand.New(rand.NewPCG(s, s))
	c := Start(t, Options{Brokers: 1, Settings: []string{
		"log.cleaner.backoff.ms=20", "log.cleaner.dedupe.buffer.size=1048576", "log.cleaner.io.buffer.size=16384",
		"offsets.topic.num.partitions=1", "offsets.topic.segment.bytes=30000", "log.cleaner.min.cleanable.ratio=0.1", "log.retention.check.interval.ms=1000",
	}})
	const topic = "compacted"
	c.CreateTopic(topic, 1, 1, "cleanup.policy=compact", "segment.bytes=60000", "min.cleanable.dirty.ratio=0.05", "delete.retention.ms=500", "file.delete.delay.ms=500")
	n := c.Brokers[0]

	stop := cleanerLoad(t, c, topic)
	committed := int64(0)
	group := kadm.NewClient(c.Client())
	commit := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for range 20 {
			var o kadm.Offsets
			o.AddOffset(topic, 0, committed+1, -1)
			if err := group.CommitAllOffsets(ctx, "g", o); err != nil {
				t.Fatal(err)
			}
			committed++
		}
	}
	for range max(*kills/5, 1) {
		commit()
		time.Sleep(time.Duration(100+random.IntN(300)) * time.Millisecond) // the random moment
		n.Kill()
		n.Start()
		n.AwaitServing()
		cleanerRead(t, c, topic)
	}
	for range 30 {
		commit()
	}
	acked, sent := stop()
	n.Kill()
	n.Start()
	n.AwaitServing()

	newest, _ := cleanerRead(t, c, topic)
	for k, want := range acked {
		if newest[k] < want {
			t.Errorf("%s is %d, but %d was acknowledged", k, newest[k], want)
		}
	}
	Await(t, 30*time.Second, "the topic to be compacted", func() error {
		if n := cleanerBytes(t, n.LogDir, topic+"-0"); n > 200_000 {
			return fmt.Errorf("%d bytes of %d records", n, sent)
		}
		return nil
	})
	Await(t, 30*time.Second, "__consumer_offsets to be compacted", func() error {
		if n := cleanerBytes(t, n.LogDir, "__consumer_offsets-0"); n > 100_000 {
			return fmt.Errorf("%d bytes of %d commits", n, committed)
		}
		return nil
	})
	var records int
	Await(t, 30*time.Second, topic+" to be compacted", func() error {
		var again map[string]int
		if again, records = cleanerRead(t, c, topic); fmt.Sprint(again) != fmt.Sprint(newest) {
			t.Fatalf("after compaction %d of %d records are left, newest %v, were %v", records, sent, again, newest)
		}
		if records > sent/4 {
			return fmt.Errorf("%d of %d records are left", records, sent)
		}
		return nil
	})
	n.Kill()
	n.Start()
	n.AwaitServing()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	got, err := group.FetchOffsets(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := got.Lookup(topic, 0); !ok || o.At != committed {
		t.Errorf("committed offset is %d (%v), want %d", o.At, ok, committed)
	}
	t.Logf("%d records written, %d left", sent, records)
}
