package config

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type kv = map[string]string

func TestBadDynamicValueLeavesTheLastGoodOne(t *testing.T) {
	b, errs := mustNew(t, "log.retention.ms", "1").WithDynamic(kv{"log.retention.ms": "2", "message.max.bytes": "100"}, kv{"log.retention.ms": "3"})
	if len(errs) != 0 {
		t.Fatal(errs)
	}
	b, errs = b.WithDynamic(kv{"log.retention.ms": "abc", "message.max.bytes": "200"}, kv{"log.retention.ms": "4", "compression.type": "zip"})
	topic, _ := b.Topic(nil)
	if topic.Retention.Milliseconds() != 2 || topic.MaxMessageBytes != 200 || topic.CompressionType != "producer" {
		t.Fatalf("%+v", topic)
	}
	if len(errs) != 2 || !strings.Contains(errs[0].Error(), "log.retention.ms") || !strings.Contains(errs[0].Error(), `"2" stays`) || !strings.Contains(errs[1].Error(), "compression.type") {
		t.Fatal(errs)
	}
	// Gone for all, and bad for this broker: what was good stays.
	if b, _ = b.WithDynamic(kv{"log.retention.ms": "abc"}, nil); b.DescribeBroker([]string{"log.retention.ms"})[0].Source != kmsg.ConfigSourceDynamicBrokerConfig {
		t.Fatal(b.DescribeBroker([]string{"log.retention.ms"}))
	}
	if b, errs = b.WithDynamic(nil, nil); len(errs) != 0 || value(b.DescribeBroker([]string{"log.retention.ms"})[0].Value) != "1" {
		t.Fatal(errs)
	}
}

func TestDynamicValuesThatDoNotGoTogether(t *testing.T) {
	b := mustNew(t)
	// From nothing: as many as there can be, whatever the order of their names.
	n, errs := b.WithDynamic(kv{"log.cleaner.dedupe.buffer.size": "1048576", "log.cleaner.threads": "2", "message.max.bytes": "100"}, nil)
	if topic, _ := n.Topic(nil); topic.MaxMessageBytes != 100 || len(errs) != 1 || n.CleanerThreads == 2 == (n.CleanerDedupeBytes == 1048576) {
		t.Fatalf("%d threads, %d bytes, %v", n.CleanerThreads, n.CleanerDedupeBytes, errs)
	}
	n, errs = b.WithDynamic(kv{"log.cleaner.threads": "200"}, kv{"log.cleaner.dedupe.buffer.size": "400000000"})
	if len(errs) != 0 || n.CleanerThreads != 200 {
		t.Fatal(n.CleanerThreads, errs)
	}
	// What holds already stays, and the new one that does not go with it is left out.
	n, errs = n.WithDynamic(kv{"log.cleaner.threads": "200"}, kv{"log.cleaner.dedupe.buffer.size": "1048576", "log.retention.ms": "7"})
	if topic, _ := n.Topic(nil); len(errs) == 0 || topic.Retention.Milliseconds() != 7 || n.CleanerDedupeBytes < int64(n.CleanerThreads)<<20 {
		t.Fatalf("%d threads, %d bytes, %v", n.CleanerThreads, n.CleanerDedupeBytes, errs)
	}
}

func TestAlterBroker(t *testing.T) {
	b := mustNew(t)
	s := func(v string) *string { return &v }
	const set, del, app, sub = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract
	cur := kv{"log.retention.ms": "5", "my.plugin": "x", "broker.id": "7", "message.max.bytes": "rubbish"}
	for _, all := range []bool{false, true} {
		got, err := b.AlterBroker(cur, []Op{{"log.retention.ms", del, nil}, {"log.segment.bytes", set, s("100")}, {"log.cleanup.policy", app, s("compact")}, {"listener.name.plaintext.max.connections", set, s("5")}, {"your.plugin", set, s("y")}}, all)
		if want := (kv{"log.segment.bytes": "100", "log.cleanup.policy": "delete,compact", "my.plugin": "x", "broker.id": "7", "message.max.bytes": "rubbish", "listener.name.plaintext.max.connections": "5", "your.plugin": "y"}); err != nil || !maps.Equal(got, want) {
			t.Fatalf("%v %v", got, err)
		}
		if got, err = b.AlterBroker(got, []Op{{"log.cleanup.policy", sub, s("delete")}}, all); err != nil || got["log.cleanup.policy"] != "compact" {
			t.Fatalf("%v %v", got, err)
		}
		if got, err = b.ReplaceBroker(cur, []Op{{Name: "log.segment.bytes", Value: s("100")}}, all); err != nil || len(got) != 1 {
			t.Fatalf("%v %v", got, err)
		}
		for _, c := range []struct {
			ops  []Op
			want error
		}{
			{[]Op{{"log.retention.ms", set, s("abc")}}, kerr.InvalidRequest}, {[]Op{{"log.retention.ms", set, s("0")}}, kerr.InvalidRequest}, {[]Op{{"broker.id", set, s("1")}}, kerr.InvalidRequest},
			{[]Op{{"broker.id", del, nil}}, kerr.InvalidRequest}, {[]Op{{"node.id", set, s("1")}}, kerr.InvalidRequest}, {[]Op{{"ssl.keystore.location", set, s("1")}}, kerr.InvalidRequest},
			{[]Op{{"listener.name.plaintext.sasl.jaas.config", set, s("hunter2")}}, kerr.InvalidRequest}, {[]Op{{"listener.name.plaintext.max.connections", set, s("x")}}, kerr.InvalidRequest}, {[]Op{{"listener.name.PLAINTEXT.max.connections", set, s("5")}}, kerr.InvalidRequest},
			{[]Op{{"penstock.zookeeper.digest", set, s("u:hunter2")}}, kerr.InvalidRequest}, {[]Op{{"log.retention.ms", set, nil}}, kerr.InvalidRequest},
			{[]Op{{"log.retention.ms", app, s("1")}}, kerr.InvalidConfig}, {[]Op{{"my.plugin", app, s("1")}}, kerr.InvalidConfig}, {[]Op{{"log.retention.ms", 9, s("1")}}, kerr.InvalidRequest},
			{[]Op{{"my.plugin", set, s("1")}, {"my.plugin", del, nil}}, kerr.InvalidRequest}, {[]Op{{"log.cleaner.min.compaction.lag.ms", set, s("9")}, {"log.cleaner.max.compaction.lag.ms", set, s("8")}}, kerr.InvalidRequest},
			{[]Op{{"log.cleaner.dedupe.buffer.size", set, s("1000")}}, kerr.InvalidRequest},
		} {
			if got, err := b.AlterBroker(kv{"log.retention.ms": "5"}, c.ops, all); !errors.Is(err, c.want) || got != nil || strings.Contains(err.Error(), "hunter") {
				t.Errorf("%+v: %v", c.ops, err)
			}
		}
	}
}

func TestThreadsAreHalvedOrDoubledAtMost(t *testing.T) {
	s := func(v string) []Op {
		return []Op{{"num.replica.fetchers", kmsg.IncrementalAlterConfigOpSet, &v}}
	}
	b := mustNew(t, "num.replica.fetchers", "4")
	for v, good := range map[string]bool{"8": true, "2": true, "4": true, "9": false, "1": false, "0": false} {
		if _, err := b.AlterBroker(nil, s(v), true); (err == nil) != good {
			t.Errorf("from 4 to %s: %v", v, err)
		}
	}
	// A value of this broker's own hides the one for all.
	own, _ := b.WithDynamic(kv{"num.replica.fetchers": "3"}, nil)
	if _, err := own.AlterBroker(nil, s("50"), true); err != nil {
		t.Error(err)
	}
	// And when it goes, what is behind it must not be too far away.
	if _, err := own.ReplaceBroker(kv{"num.replica.fetchers": "3"}, nil, false); err != nil {
		t.Error(err)
	}
	high, _ := b.WithDynamic(kv{"num.replica.fetchers": "30"}, nil)
	if _, err := high.ReplaceBroker(kv{"num.replica.fetchers": "30"}, nil, false); !errors.Is(err, kerr.InvalidRequest) {
		t.Error(err)
	}
}

// ZooKeeper hangs up on a client that writes too large a znode.
func TestMoreSettingsThanAZnodeHoldsAreRefused(t *testing.T) {
	b := mustNew(t)
	long := func(n int, what string) []Op {
		v := strings.Repeat(what, n)
		return []Op{{"leader.replication.throttled.replicas", kmsg.IncrementalAlterConfigOpSet, &v}}
	}
	for _, ops := range [][]Op{long(1_200_000/10, "10000:1000,"), long(20<<20, "1")} {
		if _, err := b.AlterTopic(nil, ops); !errors.Is(err, kerr.InvalidConfig) || len(err.Error()) > 500 {
			t.Errorf("%.300v", err)
		}
		if err := b.ValidateTopic(kv{ops[0].Name: *ops[0].Value}); err == nil || len(err.Error()) > 500 {
			t.Errorf("a new topic: %.300v", err)
		}
		ops[0].Name = "my.own"
		if _, err := b.AlterBroker(nil, ops, true); !errors.Is(err, kerr.InvalidRequest) || len(err.Error()) > 500 {
			t.Errorf("%.300v", err)
		}
	}
	escaped := long(200_000, "\x01")
	escaped[0].Name = "my.own"
	if _, err := b.AlterBroker(nil, escaped, false); !errors.Is(err, kerr.InvalidRequest) {
		t.Errorf("%.300v", err)
	}
	// As many as a reassignment of 20,000 replicas sets.
	good := strings.TrimSuffix(strings.Repeat("10000:1000,", 20_000), ",")
	if _, err := b.AlterTopic(nil, []Op{{"leader.replication.throttled.replicas", kmsg.IncrementalAlterConfigOpSet, &good}}); err != nil {
		t.Errorf("%.300v", err)
	}
}

func TestChangedSettingsAreNamed(t *testing.T) {
	b, _ := mustNew(t).WithDynamic(kv{"log.retention.ms": "5", "message.max.bytes": "1048588"}, kv{"log.retention.ms": "6"})
	n, _ := b.WithDynamic(nil, kv{"log.retention.ms": "5", "log.segment.bytes": "1000"})
	if got := n.Changed(b); len(got) != 1 || got[0] != "log.segment.bytes" {
		t.Fatal(got)
	}
}
