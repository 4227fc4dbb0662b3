package config

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func base(kv ...string) map[string]string {
	m := map[string]string{"broker.id": "1", "zookeeper.connect": "localhost:2181/x", "listeners": "PLAINTEXT://127.0.0.1:9092"}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

func mustNew(t testing.TB, kv ...string) *Broker {
	t.Helper()
	b, err := New(base(kv...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestProvisionedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.properties")
	err := os.WriteFile(path, []byte(`# a broker
broker.id=2
log.dirs=/var/a, /var/b
listeners=CLIENT://127.0.0.1:19092,INTERNAL://127.0.0.1:19093
advertised.listeners=CLIENT://127.0.0.1:19092,INTERNAL://127.0.0.1:19093
listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT
inter.broker.listener.name=INTERNAL
listener.name.client.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.internal.sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.internal.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
    username="broker" password="p" user_broker="p";
listener.name.client.connections.max.reauth.ms=60000
listener.name.client.max.connections=7
sasl.oauthbearer.jwks.endpoint.url=http://127.0.0.1:80/jwks
sasl.oauthbearer.expected.audience=clu_1
sasl.oauthbearer.expected.issuer=http://127.0.0.1:80
penstock.oauth.jwks.cache.file=/var/jwks.json
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:broker;User:control
zookeeper.connect=127.0.0.1:2181/clusters/clu_1
penstock.zookeeper.digest=u:pw
zookeeper.set.acl=true
zookeeper.session.timeout.ms=6000
group.initial.rebalance.delay.ms=0
penstock.usage.enable=true
penstock.usage.interval.ms=1000
max.connections.per.ip.overrides=127.0.0.1:5,[::1]:6
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Load(path, []string{"broker.id=3", "num.partitions = 4", "broker.id=5"})
	if err != nil {
		t.Fatal(err)
	}
	if b.ID != 5 || b.NumPartitions != 4 || !slices.Equal(b.LogDirs, []string{"/var/a", "/var/b"}) || len(b.Listeners) != 2 || b.InterBrokerListener != "INTERNAL" ||
		b.ZooKeeperSessionTimeout != 6*time.Second || b.ZooKeeperConnectionTimeout != 6*time.Second || !b.ACLs || len(b.SuperUsers) != 2 || b.GroupInitialRebalanceDelay != 0 ||
		!b.UsageEnable || b.UsageInterval != time.Second || b.ListenerMaxConnections["CLIENT"] != 7 || b.MaxConnectionsPerIPFor[netip.MustParseAddr("::1")] != 6 {
		t.Fatalf("%+v", b)
	}
	if w := b.Warnings(); len(w) != 0 {
		t.Fatal(w)
	}
	client, internal := b.SASL("CLIENT"), b.SASL("INTERNAL")
	if !slices.Equal(client.Mechanisms, []string{"OAUTHBEARER"}) || client.MaxReauth != time.Minute || client.OAuth.Issuer != "http://127.0.0.1:80" || client.OAuth.ClockSkew != 30*time.Second || client.OAuth.Refresh != time.Hour {
		t.Fatalf("%+v", client)
	}
	if !slices.Equal(internal.Mechanisms, []string{"PLAIN"}) || internal.MaxReauth != 0 || !strings.HasSuffix(internal.JAAS, `user_broker="p";`) {
		t.Fatalf("%+v", internal)
	}
	if e, ok := b.Listener("client"); !ok || !e.SASL() || e.Addr() != "127.0.0.1:19092" {
		t.Fatalf("%+v", e)
	}
}

func TestDefaultsAreKafkas(t *testing.T) {
	b := mustNew(t)
	if b.SocketRequestMaxBytes != 100<<20 || b.ConnectionsMaxIdle != 10*time.Minute || b.FetchMaxBytes != 55<<20 || b.ReplicaLagTimeMax != 30*time.Second || !b.AutoCreateTopics ||
		b.OffsetsPartitions != 50 || b.QuotaSamples != 11 || b.QuotaWindow != time.Second || b.MaxConnections != 1<<31-1 || b.QueuedMaxRequestBytes != -1 || b.FlushSchedulerInterval != Forever ||
		b.InterBrokerListener != "PLAINTEXT" || !slices.Equal(b.LogDirs, []string{"/tmp/kafka-logs"}) || b.ACLs || b.UsageEnable || b.GroupInitialRebalanceDelay != 3*time.Second {
		t.Fatalf("%+v", b)
	}
	topic, err := b.Topic(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Topic{Delete: true, CompressionType: "producer", GzipLevel: -1, LZ4Level: 9, ZstdLevel: 3, DeleteRetention: 24 * time.Hour, FileDeleteDelay: time.Minute,
		FlushMessages: 1<<63 - 1, FlushInterval: Forever, IndexIntervalBytes: 4096, MaxCompactionLag: Forever, MinCleanableRatio: 0.5, MaxMessageBytes: 1048588,
		TimestampBeforeMax: Forever, TimestampAfterMax: time.Hour, MinISR: 1, RetentionBytes: -1, Retention: 7 * 24 * time.Hour, SegmentBytes: 1 << 30, SegmentIndexBytes: 10 << 20, SegmentAge: 7 * 24 * time.Hour}
	if !reflect.DeepEqual(topic, want) {
		t.Fatalf("got  %+v\nwant %+v", topic, want)
	}
}

func TestAllFaultsAreReportedTogether(t *testing.T) {
	_, err := New(map[string]string{
		"num.partitions": "many", "listeners": "FOO://x:1", "zookeeper.session.timeout.ms": "-5", "log.cleanup.policy": "delet",
		"super.users": "alice", "penstock.zookeeper.digest": "hunter2secret", "offsets.topic.replication.factor": "0", "log.retention.hours": "0",
	})
	if !errors.Is(err, ErrConfig) {
		t.Fatal(err)
	}
	for _, key := range []string{"num.partitions", "listeners", "zookeeper.session.timeout.ms", "log.cleanup.policy", "super.users", "penstock.zookeeper.digest", "broker.id", "zookeeper.connect", "offsets.topic.replication.factor", "log.retention.hours"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%s is missing in %v", key, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("a secret is in the error")
	}
}

func TestSingleFaults(t *testing.T) {
	for _, kv := range [][]string{
		{"broker.id", "-1"}, {"broker.id", "1001"}, {"broker.id", "1.5"}, {"broker.id", ""}, {"auto.create.topics.enable", "yes"},
		{"listeners", ""}, {"listeners", "PLAINTEXT://h"}, {"listeners", "PLAINTEXT://h:70000"}, {"listeners", "PLAINTEXT://:1,PLAINTEXT://:2"},
		{"listeners", "PLAINTEXT://:1,SASL_PLAINTEXT://:1"}, {"listeners", "SSL://:1"}, {"advertised.listeners", "PLAINTEXT://0.0.0.0:1"},
		{"advertised.listeners", "SASL_PLAINTEXT://h:1"}, {"inter.broker.listener.name", "NOPE"}, {"listener.security.protocol.map", "PLAINTEXT:MAGIC"},
		{"listener.security.protocol.map", "PLAINTEXT"}, {"log.dirs", "/a,,/b"}, {"log.dirs", "/a,/a"}, {"replica.fetch.wait.max.ms", "40000"},
		{"group.min.session.timeout.ms", "9999999"}, {"max.connections.per.ip.overrides", "localhost:5"}, {"max.connections.per.ip.overrides", "1.2.3.4"},
		{"sasl.oauthbearer.jwks.endpoint.url", "ftp://x"}, {"authorizer.class.name", "com.example.Mine"}, {"compression.type", "zip"},
		{"log.cleaner.min.cleanable.ratio", "1.5"}, {"log.cleaner.min.cleanable.ratio", "NaN"}, {"default.replication.factor", "40000"}, {"log.retention.ms", "-2"},
		{"listener.name.plaintext.max.connections", "x"}, {"penstock.oauth.algorithms", "HS256"}, {"penstock.usage.interval.ms", "1"},
		{"penstock.telemetry.metrics.endpoint", "http://[::1"}, {"penstock.telemetry.metrics.endpoint", "collector:4318"}, {"penstock.telemetry.metrics.endpoint", "http:///v1/metrics"},
		{"log.cleaner.min.compaction.lag.ms", "9223372036854775808"},
	} {
		if _, err := New(base(kv...)); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), kv[0]) && kv[0] != "advertised.listeners" {
			t.Errorf("%v: %v", kv, err)
		}
	}
	if _, err := Load("", []string{"novalue"}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	if _, err := Load("/nowhere/x", nil); !errors.Is(err, ErrConfig) || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestIgnoredSettingsAreNamed(t *testing.T) {
	b := mustNew(t, "my.own", "secretvalue", "log.dir.failure.timeout.ms", "2", "listener.name.other.max.connections", "5", "listener.name.plaintext.frobnicate", "1", "listener.name.plaintext.ssl.keystore.location", "x")
	w := b.Warnings()
	if len(w) != 5 {
		t.Fatalf("%q", w)
	}
	all := strings.Join(w, "\n")
	for _, k := range []string{"my.own", "log.dir.failure.timeout.ms", "listener.name.other.max.connections", "frobnicate", "ssl.keystore.location"} {
		if !strings.Contains(all, k) {
			t.Errorf("%s is not named", k)
		}
	}
	if strings.Contains(all, "secretvalue") {
		t.Error("a value is named")
	}
}

func TestEmptyHostIsAdvertisedByName(t *testing.T) {
	b := mustNew(t, "listeners", "PLAINTEXT://:9092")
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	if b.Advertised[0].Host != host || b.Listeners[0].Host != "" {
		t.Fatalf("%+v %+v", b.Advertised, b.Listeners)
	}
}

func TestTopicFallsBackToTheBroker(t *testing.T) {
	b := mustNew(t, "log.retention.hours", "2", "log.segment.bytes", "1000", "log.message.timestamp.type", "LogAppendTime", "min.insync.replicas", "2", "log.roll.jitter.hours", "1")
	topic, err := b.Topic(map[string]string{"cleanup.policy": "compact, delete", "segment.bytes": " 500 ", "retention.ms": "-1"})
	if err != nil {
		t.Fatal(err)
	}
	if !topic.Compact || !topic.Delete || topic.SegmentBytes != 500 || topic.Retention >= 0 || !topic.LogAppendTime || topic.MinISR != 2 || topic.SegmentJitter != time.Hour {
		t.Fatalf("%+v", topic)
	}
	for _, c := range []struct {
		kv   []string
		want time.Duration
	}{
		{[]string{"log.retention.hours", "2", "log.retention.minutes", "3"}, 3 * time.Minute},
		{[]string{"log.retention.hours", "2", "log.retention.minutes", "3", "log.retention.ms", "4"}, 4 * time.Millisecond},
		{[]string{"log.retention.hours", "-1"}, -time.Millisecond},
		{[]string{"log.retention.minutes", "-1"}, -time.Millisecond},
	} {
		if topic, _ := mustNew(t, c.kv...).Topic(nil); topic.Retention != c.want {
			t.Errorf("%v: %v", c.kv, topic.Retention)
		}
	}
}

func TestOlderTimestampBound(t *testing.T) {
	b := mustNew(t)
	topic, _ := b.Topic(map[string]string{"message.timestamp.difference.max.ms": "5"})
	if topic.TimestampBeforeMax != 5*time.Millisecond || topic.TimestampAfterMax != 5*time.Millisecond {
		t.Fatalf("%+v", topic)
	}
	topic, _ = b.Topic(map[string]string{"message.timestamp.difference.max.ms": "5", "message.timestamp.before.max.ms": "9"})
	if topic.TimestampBeforeMax != 9*time.Millisecond || topic.TimestampAfterMax != 5*time.Millisecond {
		t.Fatalf("%+v", topic)
	}
	topic, _ = b.Topic(map[string]string{"message.timestamp.before.max.ms": "9"})
	if topic.TimestampBeforeMax != 9*time.Millisecond || topic.TimestampAfterMax != time.Hour {
		t.Fatalf("%+v", topic)
	}
}

func TestBadOverridesAreNamedEach(t *testing.T) {
	b := mustNew(t)
	topic, err := b.Topic(map[string]string{"retention.ms": "abc", "cleanup.policy": "delet", "no.such.key": "1", "segment.bytes": "777", "min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"})
	var errs TopicErrors
	if !errors.As(err, &errs) || len(errs) != 4 {
		t.Fatalf("%v", err)
	}
	for i, k := range []string{"cleanup.policy", "max.compaction.lag.ms", "no.such.key", "retention.ms"} {
		if errs[i].Key != k {
			t.Errorf("%v", errs[i])
		}
	}
	if topic.SegmentBytes != 777 || topic.Retention != 7*24*time.Hour || !topic.Delete {
		t.Fatalf("good overrides must hold next to bad ones: %+v", topic)
	}
	for _, kv := range [][2]string{{"retention.ms", "-2"}, {"segment.bytes", "13"}, {"compression.type", ""}, {"min.insync.replicas", "0"}, {"preallocate", "1"}, {"min.cleanable.dirty.ratio", "2"},
		{"remote.storage.enable", "true"}, {"compression.gzip.level", "0"}, {"leader.replication.throttled.replicas", "x"}, {"max.message.bytes", "2147483648"}, {"message.timestamp.type", "createtime"}} {
		if b.ValidateTopic(map[string]string{kv[0]: kv[1]}) == nil {
			t.Errorf("%v accepted", kv)
		}
	}
	for _, k := range topicKeys {
		if err := b.ValidateTopic(map[string]string{k.name: k.def}); err != nil {
			t.Errorf("default of %s: %v", k.name, err)
		}
	}
}

func TestDefaultsOfAllKeysPassTheirChecks(t *testing.T) {
	for _, k := range append(slices.Clone(brokerKeys), topicKeys...) {
		if !k.null && k.name != "penstock.zookeeper.digest" {
			if _, err := k.parse(k.def); err != nil {
				t.Error(err)
			}
		}
		if k.doc == "" {
			t.Errorf("%s has no doc", k.name)
		}
		for _, s := range k.syn {
			if brokerIndex[s] == nil {
				t.Errorf("%s: synonym %s is unknown", k.name, s)
			}
		}
	}
	if len(topicIndex) != len(topicKeys) || len(brokerIndex) != len(brokerKeys) {
		t.Error("a key stands twice")
	}
	for name := range prefixable {
		if brokerIndex[name] == nil {
			t.Errorf("prefixable %s is unknown", name)
		}
	}
}

func value(s *string) string {
	if s == nil {
		return "<nil>"
	}
	return *s
}

func chainText(e Entry) string {
	var parts []string
	for _, s := range e.Synonyms {
		parts = append(parts, s.Name+"="+value(s.Value)+":"+s.Source.String())
	}
	return strings.Join(parts, " ")
}

func TestDescribeTopic(t *testing.T) {
	b := mustNew(t, "log.retention.hours", "5", "log.segment.bytes", "100")
	// An override that equals the default is an override all the same.
	got := b.DescribeTopic(map[string]string{"retention.ms": "604800000"}, []string{"segment.bytes", "retention.ms", "nope", "retention.ms", "flush.ms", "leader.replication.throttled.replicas"})
	if len(got) != 4 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []struct {
		name, value, chain string
		src                kmsg.ConfigSource
	}{
		{"flush.ms", maxLong, "log.flush.scheduler.interval.ms=" + maxLong + ":DEFAULT_CONFIG", kmsg.ConfigSourceDefaultConfig},
		{"leader.replication.throttled.replicas", "", "leader.replication.throttled.replicas=:DEFAULT_CONFIG", kmsg.ConfigSourceDefaultConfig},
		{"retention.ms", "604800000", "retention.ms=604800000:DYNAMIC_TOPIC_CONFIG log.retention.hours=5:STATIC_BROKER_CONFIG log.retention.hours=168:DEFAULT_CONFIG", kmsg.ConfigSourceDynamicTopicConfig},
		{"segment.bytes", "100", "log.segment.bytes=100:STATIC_BROKER_CONFIG log.segment.bytes=1073741824:DEFAULT_CONFIG", kmsg.ConfigSourceStaticBrokerConfig},
	} {
		e := got[i]
		if e.Name != want.name || value(e.Value) != want.value || e.Source != want.src || chainText(e) != want.chain || e.ReadOnly || e.Sensitive || e.Doc == "" {
			t.Errorf("%s = %s (%v): %s", e.Name, value(e.Value), e.Source, chainText(e))
		}
	}
	if e := b.DescribeTopic(nil, []string{"retention.ms"})[0]; value(e.Value) != "18000000" || e.Source != kmsg.ConfigSourceStaticBrokerConfig || e.IsDefault() {
		t.Errorf("%+v", e)
	}
	if n := len(b.DescribeTopic(nil, nil)); n != len(topicKeys) {
		t.Errorf("%d of %d keys", n, len(topicKeys))
	}
	if n := len(b.DescribeTopic(nil, []string{})); n != len(topicKeys) {
		t.Errorf("%d of %d keys for an empty list, which asks for all as none does", n, len(topicKeys))
	}
}

func TestDescribeBroker(t *testing.T) {
	b := mustNew(t, "penstock.zookeeper.digest", "user:hunter2", "log.segment.bytes", "100", "listener.name.plaintext.plain.sasl.jaas.config", "hunter3", "listener.name.plaintext.max.connections", "9")
	b, errs := b.WithDynamic(map[string]string{"log.segment.bytes": "300", "listener.name.plaintext.max.connections": "7"}, map[string]string{"log.segment.bytes": "200", "message.max.bytes": "50", "broker.id": "7", "my.plugin.password": "hunter4", "background.threads": "12"})
	if b.ID != 1 || len(errs) != 2 || !strings.Contains(errs[0].Error(), "background.threads") || !strings.Contains(errs[1].Error(), "broker.id") {
		t.Fatalf("%v %q", b.ID, errs)
	}
	if topic, _ := b.Topic(nil); topic.SegmentBytes != 300 || topic.MaxMessageBytes != 50 {
		t.Fatalf("%+v", topic)
	}
	all := b.DescribeBroker(nil)
	at := map[string]Entry{}
	for _, e := range all {
		at[e.Name] = e
		for _, s := range append(e.Synonyms, Synonym{Value: e.Value}) {
			if strings.Contains(value(s.Value), "hunter") {
				t.Errorf("%s tells a secret", e.Name)
			}
		}
	}
	seg := at["log.segment.bytes"]
	if value(seg.Value) != "300" || seg.Source != kmsg.ConfigSourceDynamicBrokerConfig || seg.ReadOnly ||
		chainText(seg) != "log.segment.bytes=300:DYNAMIC_BROKER_CONFIG log.segment.bytes=200:DYNAMIC_DEFAULT_BROKER_CONFIG log.segment.bytes=100:STATIC_BROKER_CONFIG log.segment.bytes=1073741824:DEFAULT_CONFIG" {
		t.Errorf("%+v %s", seg, chainText(seg))
	}
	if e := at["penstock.zookeeper.digest"]; !e.Sensitive || e.Value != nil || e.Source != kmsg.ConfigSourceStaticBrokerConfig {
		t.Errorf("%+v", e)
	}
	if e := at["listener.name.plaintext.plain.sasl.jaas.config"]; !e.Sensitive || e.Value != nil {
		t.Errorf("%+v", e)
	}
	if e := at["broker.id"]; !e.ReadOnly || value(e.Value) != "1" {
		t.Errorf("%+v", e)
	}
	if e := at["my.plugin.password"]; !e.Sensitive || !e.ReadOnly || chainText(e) != "my.plugin.password=<nil>:DYNAMIC_DEFAULT_BROKER_CONFIG" {
		t.Errorf("%+v", e)
	}
	if e := at["listener.name.plaintext.max.connections"]; e.ReadOnly || value(e.Value) != "7" || b.ListenerMaxConnections["PLAINTEXT"] != 7 ||
		chainText(e) != "listener.name.plaintext.max.connections=7:DYNAMIC_BROKER_CONFIG listener.name.plaintext.max.connections=9:STATIC_BROKER_CONFIG" {
		t.Errorf("%+v", e)
	}
	if e := at["log.retention.ms"]; e.Value != nil || chainText(e) != "log.retention.hours=168:DEFAULT_CONFIG" {
		t.Errorf("%+v %s", e, chainText(e))
	}
	if got := b.DescribeBroker([]string{"listener.name.plaintext.max.connections", "num.partitions", "zzz"}); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if !slices.IsSortedFunc(all, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted")
	}
	if got := b.DescribeDefault(nil); len(got) != 4 || chainText(got[0]) != "background.threads=<nil>:DYNAMIC_DEFAULT_BROKER_CONFIG" || chainText(got[1]) != "log.segment.bytes=200:DYNAMIC_DEFAULT_BROKER_CONFIG" || value(got[2].Value) != "50" || got[3].Value != nil {
		t.Errorf("%+v", got)
	}
	if got := b.DescribeDefault([]string{"message.max.bytes", "num.partitions"}); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	// A topic's chain goes through all layers.
	if e := b.DescribeTopic(map[string]string{"segment.bytes": "400"}, []string{"segment.bytes"})[0]; value(e.Value) != "400" ||
		chainText(e) != "segment.bytes=400:DYNAMIC_TOPIC_CONFIG log.segment.bytes=300:DYNAMIC_BROKER_CONFIG log.segment.bytes=200:DYNAMIC_DEFAULT_BROKER_CONFIG log.segment.bytes=100:STATIC_BROKER_CONFIG log.segment.bytes=1073741824:DEFAULT_CONFIG" {
		t.Errorf("%s", chainText(e))
	}
}

func TestAlterTopic(t *testing.T) {
	b := mustNew(t)
	s := func(v string) *string { return &v }
	const set, del, app, sub = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract
	cur := map[string]string{"retention.ms": "5", "segment.bytes": "100", "cleanup.policy": "compact"}
	got, err := b.AlterTopic(cur, []Op{{"retention.ms", del, nil}, {"flush.ms", set, s("7")}, {"cleanup.policy", app, s("delete,compact")}})
	if err != nil || len(got) != 3 || got["flush.ms"] != "7" || got["segment.bytes"] != "100" || got["cleanup.policy"] != "compact,delete" {
		t.Fatalf("%v %v", got, err)
	}
	if len(cur) != 3 || cur["cleanup.policy"] != "compact" {
		t.Fatal("the old map was touched")
	}
	if got, err = b.AlterTopic(nil, []Op{{"cleanup.policy", app, s("compact")}}); err != nil || got["cleanup.policy"] != "delete,compact" {
		t.Fatalf("append to the default: %v %v", got, err)
	}
	if got, err = b.AlterTopic(got, []Op{{"cleanup.policy", sub, s("delete")}}); err != nil || got["cleanup.policy"] != "compact" {
		t.Fatalf("%v %v", got, err)
	}
	for _, c := range []struct {
		ops  []Op
		want error
	}{
		{[]Op{{"retention.ms", set, s("abc")}}, kerr.InvalidConfig}, {[]Op{{"nope", set, s("1")}}, kerr.InvalidConfig}, {[]Op{{"nope", del, nil}}, kerr.InvalidConfig},
		{[]Op{{"retention.ms", set, nil}}, kerr.InvalidRequest}, {[]Op{{"retention.ms", app, s("1")}}, kerr.InvalidConfig}, {[]Op{{"retention.ms", 9, s("1")}}, kerr.InvalidRequest},
		{[]Op{{"retention.ms", set, s("1")}, {"retention.ms", del, nil}}, kerr.InvalidRequest}, {[]Op{{"min.compaction.lag.ms", set, s("9")}, {"max.compaction.lag.ms", set, s("8")}}, kerr.InvalidConfig},
	} {
		if got, err := b.AlterTopic(cur, c.ops); !errors.Is(err, c.want) || got != nil {
			t.Errorf("%+v: %v", c.ops, err)
		}
	}
	// An old bad value does not stop other changes.
	if _, err := b.AlterTopic(map[string]string{"retention.ms": "rubbish"}, []Op{{"flush.ms", set, s("7")}}); err != nil {
		t.Error(err)
	}
	// The old call replaces the whole set.
	if got, err := b.ReplaceTopic([]Op{{Name: "flush.ms", Value: s("7")}}); err != nil || len(got) != 1 {
		t.Errorf("%v %v", got, err)
	}
}
