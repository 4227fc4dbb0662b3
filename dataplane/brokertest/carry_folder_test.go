//go:build compat

package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/apache"
	"penstock/dataplane/coordination/zktest"
)

// make_ is who serves the folder.
type make_ int

const (
	nobody make_ = iota
	penstock
	kafka
)

func (m make_) String() string { return [...]string{"nobody", "Penstock", "Kafka"}[m] }

const carryID = 7

// carrySettings are server.properties of both makes. Everything is small and
// quick, so that a leg of seconds rolls segments, cleans and times out.
var carrySettings = []string{
	"auto.create.topics.enable=false", "offsets.topic.num.partitions=2", "offsets.topic.segment.bytes=8192",
	"transaction.state.log.num.partitions=2", "transaction.state.log.segment.bytes=8192",
	"transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
	"log.cleaner.backoff.ms=200", "log.cleaner.dedupe.buffer.size=4194304", "log.cleaner.io.buffer.size=65536",
	"log.retention.check.interval.ms=1000", "log.flush.start.offset.checkpoint.interval.ms=500", "log.index.interval.bytes=512",
	"num.recovery.threads.per.data.dir=2", "num.network.threads=2", "num.io.threads=4",
	"controlled.shutdown.retry.backoff.ms=200", "unclean.leader.election.enable=false",
}

// folder is what lies in log.dirs, with its broker's znodes, that Apache Kafka
// 3.9 and ours take turns with.
type folder struct {
	t       *testing.T
	data    string // where the folders of log.dirs are
	dirs    []string
	addr    string // of whoever serves
	who     make_
	last    make_ // who had it last
	held    make_ // who opened it last, and before that: not all do work
	prior   make_
	byTopic map[string]*carriedLog

	apache  apache.InZooKeeper
	theirs  *apache.Broker
	ours    *Node
	crashed bool  // whoever had it was killed
	said    int64 // length of the log of the broker at its start
	dumps   dumps

	steady    *kgo.Client // an idempotent producer that lives through all moves
	sequenced sequencedProducer
	undecided []*wanted        // of the transaction that is left open
	late      []*wanted        // of the one that has timed out when Kafka is back
	offsets   map[string]int64 // of group, for plain-0
	pending   bool             // an open transaction has committed an offset of group txpending
	readersAt int64            // what the group of flood has committed at least
	inFlight  []int            // transactions of txflood whose commit was acknowledged
	swapped   string           // what a swap that was left unfinished replaces
	before    reading          // of the internal topics, when the leg before ended
}

func newFolder(t *testing.T, dirs int) *folder {
	t.Helper()
	home := t.TempDir()
	zk, err := zktest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(zk.Stop)
	c := &Cluster{Dir: home, ZK: zk, t: t, chroot: "/carried"}
	t.Cleanup(c.stopAll)
	port := c.freePorts(1)[0]
	f := &folder{t: t, data: filepath.Join(home, "data"), addr: fmt.Sprintf("127.0.0.1:%d", port), byTopic: map[string]*carriedLog{}, offsets: map[string]int64{}}
	for i := range dirs {
		f.dirs = append(f.dirs, filepath.Join(f.data, strconv.Itoa(i)))
	}
	f.apache = apache.InZooKeeper{
		ID: carryID, Connect: zk.Addr() + c.chroot, Port: port, LogDirs: f.dirs,
		Home: filepath.Join(home, "kafka"), Settings: carrySettings,
	}
	f.ours = &Node{ID: carryID, c: c, binary: Binary(t), Addr: f.addr, Properties: filepath.Join(home, "broker.properties")}
	if err := os.WriteFile(f.ours.Properties, []byte(strings.Join(f.apache.Properties(), "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Brokers = []*Node{f.ours}
	t.Cleanup(func() {
		if f.theirs != nil {
			f.theirs.Kill()
		}
		f.dumps.wait()
		if t.Failed() {
			if b, err := os.ReadFile(filepath.Join(f.apache.Home, "broker.log")); err == nil {
				t.Logf("Kafka said at last:\n%s", tail(b, 6000))
			}
		}
	})
	return f
}

func (f *folder) log() string {
	if f.who == kafka {
		return filepath.Join(f.apache.Home, "broker.log")
	}
	return f.ours.logFile()
}

// start lets a make take the folder over.
func (f *folder) start(who make_) {
	f.t.Helper()
	f.who = who
	f.prior, f.held = f.held, who
	if st, err := os.Stat(f.log()); err == nil {
		f.said = st.Size()
	} else {
		f.said = 0
	}
	switch who {
	case penstock:
		f.ours.Start()
	case kafka:
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		b, err := f.apache.Start(ctx)
		if err != nil {
			if out, rerr := os.ReadFile(f.log()); rerr == nil {
				f.t.Logf("Kafka said:\n%s", tail(out, 6000))
			}
			f.t.Fatal(err)
		}
		f.theirs = b
	}
	f.t.Logf("%s has the folder", who)
}

// stop ends the broker in order.
func (f *folder) stop() {
	f.t.Helper()
	switch f.who {
	case penstock:
		f.ours.Stop()
	case kafka:
		if err := f.theirs.Stop(); err != nil {
			f.t.Fatal(err)
		}
	}
	f.who = nobody
}

// kill ends the broker by SIGKILL.
func (f *folder) kill() {
	switch f.who {
	case penstock:
		f.ours.Kill()
	case kafka:
		f.theirs.Kill()
	}
	f.who = nobody
}

// repairs are what either make says when it finds its files not as it would
// have left them.
var repairs = map[make_][]string{
	kafka: {
		"orrupt", "rebuilding index", "Recovering unflushed segment", "Could not find", "Unsupported", "Invalid", "Failed to",
		"Attempting recovery", "no clean shutdown", "Stray", "stray",
	},
	penstock: {"rebuilding", "are unreadable", "replaying batches", "cutting", "torn", "removing a bad", "starting anew"},
}

// undisturbed demands that the broker, started after an orderly stop, found
// everything in order.
func (f *folder) undisturbed() {
	f.t.Helper()
	b, err := os.ReadFile(f.log())
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range bytes.Lines(b[f.said:]) {
		if bytes.Contains(line, []byte("an index is empty")) {
			continue // Kafka's cleaner makes one entry for all that it writes at once, and none for the first of that
		}
		for _, word := range repairs[f.who] {
			if bytes.Contains(line, []byte(word)) {
				f.t.Errorf("%s, after a clean stop: %s", f.who, bytes.TrimSpace(line))
				break
			}
		}
	}
}

// client makes a client that is closed with the test or before.
func (f *folder) client(opts ...kgo.Opt) *kgo.Client {
	f.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(f.addr), naming(), kgo.RetryTimeout(time.Minute), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(cl.Close)
	return cl
}

// within runs fn with an admin client that lives as long as fn. A broker that has
// just started may not have heard of its partitions yet: then fn runs again.
func (f *folder) within(fn func(ctx context.Context, adm *kadm.Client) error) {
	f.t.Helper()
	cl := f.client()
	defer cl.Close()
	Await(f.t, 30*time.Second, f.who.String(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := fn(ctx, kadm.NewClient(cl))
		if err != nil && !kerr.IsRetriable(err) {
			f.t.Fatalf("%s: %v", f.who, err)
		}
		return err
	})
}
