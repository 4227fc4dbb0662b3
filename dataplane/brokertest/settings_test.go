package brokertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
	"penstock/dataplane/recordbatch"
)

// setBroker sets dynamic settings of a broker, or with "" of all, by key and value.
func setBroker(w *wire, name string, kv ...string) {
	w.t.Helper()
	var ops []incremental
	for i := 0; i < len(kv); i += 2 {
		ops = append(ops, incremental{opSet, kv[i], kv[i+1]})
	}
	alterBroker(w, nil, name, ops...)
}

// resetBroker removes all dynamic settings of broker 0 and of all, and waits until
// that holds.
func resetBroker(w *wire) {
	w.t.Helper()
	for _, name := range []string{"0", ""} {
		wantCode(w.t, "reset", ask[*kmsg.AlterConfigsResponse](w, alterOf(ofBroker, name, false)).Resources[0].ErrorCode, nil)
	}
	Await(w.t, 10*time.Second, "nothing is set", func() error {
		for name, c := range described(w, ofBroker, "0") {
			if c.Source == fromBroker || c.Source == fromAll {
				return fmt.Errorf("%s is %s", name, chainOf(c))
			}
		}
		return nil
	})
}

func awaitProduce(w *wire, topic string, b []byte, want *kerr.Error) kmsg.ProduceResponseTopicPartition {
	w.t.Helper()
	var p kmsg.ProduceResponseTopicPartition
	Await(w.t, time.Minute, fmt.Sprintf("the answer %v", want), func() error {
		var code int16
		if want != nil {
			code = want.Code
		}
		if p = produce(w, topic, b); p.ErrorCode != code {
			return fmt.Errorf("it is %v", kerr.ErrorForCode(p.ErrorCode))
		}
		return nil
	})
	return p
}

func earliest(w *wire, topic string) int64 {
	w.t.Helper()
	return ask[*kmsg.ListOffsetsResponse](w, listOffsetsOf(topic, -2)).Topics[0].Partitions[0].Offset
}

func listOffsetsOf(topic string, timestamp int64) *kmsg.ListOffsetsRequest {
	req := at(kmsg.NewPtrListOffsetsRequest(), 5)
	req.ReplicaID = -1
	t, p := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.CurrentLeaderEpoch = timestamp, -1
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// What can be set on a running broker takes effect on it at once.
func TestSettingsOfARunningBrokerTakeEffect(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	c := Start(t, Options{Settings: []string{
		"log.retention.check.interval.ms=100", "log.cleaner.io.max.bytes.per.second=1", "log.cleaner.backoff.ms=100", "replica.alter.log.dirs.io.max.bytes.per.second=1", "log.dirs=" + strings.Join(dirs, ","),
	}})
	n := c.Brokers[0]
	w := dialBroker(t, n.Addr)
	topics := 0
	topic := func(configs ...string) string {
		topics++
		name := fmt.Sprint("t", topics)
		c.CreateTopic(name, 1, 1, configs...)
		return name
	}
	for _, step := range []struct {
		what string
		do   func(t *testing.T)
	}{
		{"message.max.bytes", func(t *testing.T) {
			a, own := topic(), topic("max.message.bytes=2000")
			setBroker(w, "", "message.max.bytes", "200")
			awaitProduce(w, a, sized(t, 500), kerr.MessageTooLarge)
			mustProduce(w, own, sized(t, 500), 0)
			setBroker(w, "0", "message.max.bytes", "1000")
			awaitProduce(w, a, sized(t, 500), nil)
			awaitProduce(w, topic(), sized(t, 2000), kerr.MessageTooLarge) // one made later
		}},
		{"compression.type", func(t *testing.T) {
			a := topic()
			setBroker(w, "0", "compression.type", "gzip")
			Await(t, 10*time.Second, "batches in gzip", func() error {
				at := produce(w, a, sized(t, 5000)).BaseOffset
				r := ask[*kmsg.FetchResponse](w, fetchFrom(a, at, 1<<20)).Topics[0].Partitions[0].RecordBatches
				if b := recordbatch.Batch(r); b.Codec() != recordbatch.CodecGzip {
					return fmt.Errorf("codec %v", b.Codec())
				}
				return nil
			})
		}},
		{"log.message.timestamp.type", func(t *testing.T) {
			a := topic()
			if p := produce(w, a, sized(t, 10)); p.LogAppendTime != -1 {
				t.Fatal(p.LogAppendTime)
			}
			setBroker(w, "", "log.message.timestamp.type", "LogAppendTime")
			Await(t, 10*time.Second, "the broker's times", func() error {
				if produce(w, a, sized(t, 10)).LogAppendTime < 0 {
					return errors.New("still the producer's")
				}
				return nil
			})
		}},
		{"log.message.timestamp.before.max.ms", func(t *testing.T) {
			a := topic()
			old, err := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Timestamp: time.Now().Add(-time.Hour).UnixMilli(), Value: []byte("x")}})
			if err != nil {
				t.Fatal(err)
			}
			mustProduce(w, a, slices.Clone(old), 0)
			setBroker(w, "", "log.message.timestamp.before.max.ms", "60000")
			awaitProduce(w, a, slices.Clone(old), kerr.InvalidTimestamp)
		}},
		{"log.segment.bytes, log.retention.bytes, log.segment.delete.delay.ms", func(t *testing.T) {
			a := topic()
			setBroker(w, "", "log.segment.bytes", "1000", "log.retention.bytes", "1", "log.segment.delete.delay.ms", "100")
			Await(t, 10*time.Second, "an end of old segments, and of their files", func() error {
				produce(w, a, sized(t, 600))
				if from := earliest(w, a); from < 5 {
					return fmt.Errorf("the log begins at %d", from)
				}
				for _, dir := range dirs {
					if left, _ := filepath.Glob(filepath.Join(dir, a+"-0", "00000000000000000000.*")); len(left) > 0 {
						return fmt.Errorf("%v", left)
					}
				}
				return nil
			})
		}},
		{"log.retention.ms", func(t *testing.T) {
			a := topic("segment.bytes=1000")
			for i := range int64(4) {
				mustProduce(w, a, sized(t, 600), i)
			}
			setBroker(w, "0", "log.retention.ms", "1")
			Await(t, 10*time.Second, "an end of old segments", func() error {
				if from := earliest(w, a); from < 3 {
					return fmt.Errorf("the log begins at %d", from)
				}
				return nil
			})
		}},
		{"log.cleanup.policy, log.cleaner.*", func(t *testing.T) {
			a := topic("segment.bytes=2000", "min.cleanable.dirty.ratio=0.01")
			put := func(i int) {
				t.Helper()
				b, err := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: fmt.Append(nil, i, strings.Repeat("x", 600))}})
				if err != nil {
					t.Fatal(err)
				}
				mustProduce(w, a, b, int64(i))
			}
			for i := range 20 {
				put(i)
			}
			first := func() int64 { // the offset of the first record that is left
				b := recordbatch.Batch(ask[*kmsg.FetchResponse](w, fetchFrom(a, 0, 1)).Topics[0].Partitions[0].RecordBatches)
				offset := int64(-1)
				for b, err := range recordbatch.Split(b) {
					if err == nil {
						err = recordbatch.Records(b, func(r recordbatch.Record) error { offset = max(offset, r.Offset); return nil })
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				return offset
			}
			setBroker(w, "", "log.cleanup.policy", "compact")
			awaitChain(w, ofTopic, a, "cleanup.policy", "compact:DYNAMIC_DEFAULT_BROKER_CONFIG delete:DEFAULT_CONFIG")
			if at := first(); at != 0 {
				t.Fatalf("the first record is at %d: 12 KB at a byte a second", at)
			}
			setBroker(w, "0", "log.cleaner.io.max.bytes.per.second", "1e9", "log.cleaner.threads", "2", "log.cleaner.dedupe.buffer.size", "3000000")
			Await(t, 20*time.Second, "the log is compacted", func() error {
				if at := first(); at == 0 {
					return errors.New("the first record is still there")
				}
				return nil
			})
		}},
		{"replica.alter.log.dirs.io.max.bytes.per.second", func(t *testing.T) {
			a := topic()
			for i := range int64(20) {
				mustProduce(w, a, sized(t, 50000), i)
			}
			from := slices.IndexFunc(dirs, func(dir string) bool { return len(c.partitionsIn(dir, a)) == 1 })
			req := at(kmsg.NewPtrAlterReplicaLogDirsRequest(), 2)
			req.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: dirs[1-from], Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: a, Partitions: []int32{0}}}}}
			wantCode(t, "move", ask[*kmsg.AlterReplicaLogDirsResponse](w, req).Topics[0].Partitions[0].ErrorCode, nil)
			Await(t, 10*time.Second, "the beginning of the move", func() error {
				if copies, _ := filepath.Glob(filepath.Join(dirs[1-from], a+"-0.*-future")); len(copies) == 0 {
					return errors.New("no copy")
				}
				return nil
			})
			setBroker(w, "", "replica.alter.log.dirs.io.max.bytes.per.second", "1000000000")
			Await(t, 10*time.Second, "the end of the move", func() error {
				if len(c.partitionsIn(dirs[1-from], a)) == 0 {
					return errors.New("not yet")
				}
				return nil
			})
		}},
		{"max.connections.per.ip.overrides, max.connections", func(t *testing.T) {
			for _, kv := range [][2]string{{"max.connections.per.ip.overrides", "127.0.0.1:0"}, {"max.connections", "1"}, {"listener.name.plaintext.max.connections", "1"}} {
				setBroker(w, "", kv[0], kv[1])
				refused := func(want bool) {
					t.Helper()
					Await(t, 10*time.Second, fmt.Sprintf("with %s connections are refused: %v", kv[0], want), func() error {
						other := dialWire(t, n.Addr)
						defer other.Close()
						if _, err := other.ask(kmsg.NewPtrApiVersionsRequest()); (err != nil) != want {
							return fmt.Errorf("the answer is %v", err)
						}
						return nil
					})
				}
				refused(true)
				alterBroker(w, nil, "", incremental{opDelete, kv[0], ""})
				refused(false)
			}
		}},
	} {
		t.Run(step.what, func(t *testing.T) {
			w.t = t
			defer resetBroker(w)
			step.do(t)
		})
	}
	w.t = t

	quiet := len(n.logged(0))
	r := ask[*kmsg.IncrementalAlterConfigsResponse](w, incrementalOf(kmsg.ConfigResourceTypeBrokerLogger, "0", false, incremental{opSet, "root", "DEBUG"})).Resources[0]
	wantCode(t, "more of the log", r.ErrorCode, nil)

	// What is set holds after a restart from the start on.
	setBroker(w, "", "message.max.bytes", "200", "num.recovery.threads.per.data.dir", "2")
	awaitChain(w, ofBroker, "0", "num.recovery.threads.per.data.dir", "2:DYNAMIC_DEFAULT_BROKER_CONFIG 1:DEFAULT_CONFIG")
	n.Stop()
	if log := string(n.logged(0)); strings.Contains(log[:quiet], "level=DEBUG") || !strings.Contains(log[quiet:], "level=DEBUG msg=stopped") {
		t.Error("the log does not go by its level")
	}
	n.Start()
	w = dialBroker(t, n.Addr)
	a := topic()
	if p := produce(w, a, sized(t, 500)); p.ErrorCode != kerr.MessageTooLarge.Code {
		t.Errorf("after a restart: %v", kerr.ErrorForCode(p.ErrorCode))
	}
}

// What others have written to a broker's znodes, however bad, neither stops it nor keeps
// it from starting, and is not lost.
func TestBadSettingsInZooKeeperStopNoBroker(t *testing.T) {
	c := Start(t, Options{})
	n := c.Brokers[0]
	w := dialBroker(t, n.Addr)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	zk, err := coordination.Connect(ctx, coordination.Config{Connect: c.ZK.Addr() + c.chroot, SessionTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer zk.Close()
	c.CreateTopic("t", 1, 1)

	setBroker(w, "0", "message.max.bytes", "200")
	awaitProduce(w, "t", sized(t, 500), kerr.MessageTooLarge)
	// As Kafka has it on its znodes.
	if b, _, err := zk.Get(ctx, "/config/brokers/0"); err != nil || string(b) != `{"version":1,"config":{"message.max.bytes":"200"}}` {
		t.Fatalf("%s, %v", b, err)
	}
	notes, err := zk.Children(ctx, "/config/changes")
	if err != nil || len(notes) == 0 {
		t.Fatal(notes, err)
	}
	if b, _, err := zk.Get(ctx, "/config/changes/"+slices.Max(notes)); err != nil || string(b) != `{"entity_path":"brokers/0","version":2}` {
		t.Fatalf("%s, %v", b, err)
	}

	theirs := map[string]string{"message.max.bytes": "abc", "log.retention.ms": "5", "their.secret": "hunter2", "broker.id": "7", "sasl.jaas.config": "hunter3"}
	if err := zk.ChangeConfig(ctx, "brokers/0", func(map[string]string) (map[string]string, error) { return maps.Clone(theirs), nil }); err != nil {
		t.Fatal(err)
	}
	awaitChain(w, ofBroker, "0", "log.retention.ms", "5:DYNAMIC_BROKER_CONFIG 168:DEFAULT_CONFIG")
	if p := produce(w, "t", sized(t, 500)); p.ErrorCode != kerr.MessageTooLarge.Code {
		t.Errorf("the last good value is gone: %v", kerr.ErrorForCode(p.ErrorCode))
	}
	n.Kill()
	n.Start()
	w = dialBroker(t, n.Addr)
	c.AwaitWhole("t", 20*time.Second)
	Await(t, 20*time.Second, "a produce though a bad value came before any good one", func() error {
		return kerr.ErrorForCode(produce(w, "t", sized(t, 500)).ErrorCode) // it may not have been told yet that it leads
	})
	awaitChain(w, ofBroker, "0", "log.retention.ms", "5:DYNAMIC_BROKER_CONFIG 168:DEFAULT_CONFIG")
	setBroker(w, "0", "log.retention.ms", "6")
	theirs["log.retention.ms"] = "6"
	if now, err := zk.Config(ctx, "brokers/0"); err != nil || !maps.Equal(now, theirs) {
		t.Errorf("%v, %v", now, err)
	}
	awaitChain(w, ofBroker, "0", "log.retention.ms", "6:DYNAMIC_BROKER_CONFIG 168:DEFAULT_CONFIG")

	// Not even JSON.
	if _, err := zk.Set(ctx, "/config/brokers/0", []byte("\x00\xff{"), -1); err != nil {
		t.Fatal(err)
	}
	setBroker(w, "", "message.max.bytes", "200") // makes the broker look
	awaitProduce(w, "t", sized(t, 500), kerr.MessageTooLarge)
	awaitChain(w, ofBroker, "0", "log.retention.ms", "6:DYNAMIC_BROKER_CONFIG 168:DEFAULT_CONFIG")
	n.Stop()
	n.Start()
	awaitChain(dialBroker(t, n.Addr), ofBroker, "0", "message.max.bytes", "200:DYNAMIC_DEFAULT_BROKER_CONFIG 1048588:DEFAULT_CONFIG")
	log, err := os.ReadFile(n.logFile())
	if err != nil || strings.Contains(string(log), "hunter") || !strings.Contains(string(log), "message.max.bytes") {
		t.Errorf("the log does not tell of the bad value, or tells a secret: %v", err)
	}
}

// num.replica.fetchers changes on three brokers under load: as many connections as it
// says, and nothing is lost. Then min.insync.replicas does, with one of them dead.
func TestFetcherThreadsChangeUnderLoad(t *testing.T) {
	c := threeBrokers(t)
	c.CreateTopic("load", 3, 3)
	c.CreateTopic("wide", 24, 3)
	l := startLoad(c, "load")
	w := dialBroker(t, c.Brokers[0].Addr)
	for _, fetchers := range []int{2, 4, 2, 1} {
		setBroker(w, "", "num.replica.fetchers", fmt.Sprint(fetchers))
		l.goesOn(1000, time.Minute)
		Await(t, 20*time.Second, fmt.Sprintf("connections of %d fetchers", fetchers), func() error {
			// Besides the fetchers' a broker has one connection to itself or another for each other purpose.
			most := 0
			for _, n := range c.Brokers {
				for _, to := range c.Brokers {
					if n != to {
						most = max(most, connections(t, n, to))
					}
				}
			}
			if most < fetchers || most > fetchers+3 {
				return fmt.Errorf("as many as %d to one broker", most)
			}
			return nil
		})
	}
	l.end(t)

	c.CreateTopic("own", 1, 3, "min.insync.replicas=1")
	c.Brokers[2].Kill()
	leader := func(topic string) *wire {
		return dialBroker(t, c.Brokers[c.awaitLeader(topic, 0, 2)].Addr)
	}
	load, own := leader("load"), leader("own")
	awaitProduce(load, "load", sized(t, 10), nil)
	setBroker(w, "", "min.insync.replicas", "3")
	awaitChain(load, ofTopic, "load", "min.insync.replicas", "3:DYNAMIC_DEFAULT_BROKER_CONFIG 1:DEFAULT_CONFIG") // or the append may have begun before
	awaitProduce(load, "load", sized(t, 10), kerr.NotEnoughReplicas)
	if p := produce(own, "own", sized(t, 10)); p.ErrorCode != 0 {
		t.Errorf("a topic with a setting of its own: %v", kerr.ErrorForCode(p.ErrorCode))
	}
	setBroker(w, "", "min.insync.replicas", "2")
	awaitProduce(load, "load", sized(t, 10), nil)
}

// connections counts those that one broker's process has made to another's port.
func connections(t *testing.T, n, to *Node) (count int) {
	t.Helper()
	var port int
	if _, err := fmt.Sscanf(to.Addr, "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	mine := map[string]bool{}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", n.PID()))
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err == nil && strings.HasPrefix(link, "socket:[") {
			mine[strings.Trim(strings.TrimPrefix(link, "socket:"), "[]")] = true
		}
	}
	for _, file := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", n.PID(), file))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", port)) && f[3] == "01" && mine[f[9]] {
				count++
			}
		}
	}
	return count
}
