package brokertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	fromBroker = kmsg.ConfigSourceDynamicBrokerConfig
	fromAll    = kmsg.ConfigSourceDynamicDefaultBrokerConfig
)

// described asks for keys of a resource, all for none, with synonyms.
func described(w *wire, typ kmsg.ConfigResourceType, name string, keys ...string) map[string]kmsg.DescribeConfigsResponseResourceConfig {
	w.t.Helper()
	r := ask[*kmsg.DescribeConfigsResponse](w, describeOf(4, typ, name, keys...)).Resources[0]
	wantCode(w.t, "describing "+name, r.ErrorCode, nil)
	out := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, c := range r.Configs {
		out[c.Name] = c
	}
	return out
}

// chainOf is where a setting comes from: value=source, strongest first.
func chainOf(c kmsg.DescribeConfigsResponseResourceConfig) string {
	var parts []string
	for _, s := range c.ConfigSynonyms {
		parts = append(parts, fmt.Sprintf("%s:%v", deref(s.Value), s.Source))
	}
	return strings.Join(parts, " ")
}

func awaitChain(w *wire, typ kmsg.ConfigResourceType, name, key, want string) {
	w.t.Helper()
	Await(w.t, 10*time.Second, key+" of "+name, func() error {
		if got := chainOf(described(w, typ, name, key)[key]); got != want {
			return fmt.Errorf("it is %s, want %s", got, want)
		}
		return nil
	})
}

func alterBroker(w *wire, want *kerr.Error, name string, ops ...incremental) {
	w.t.Helper()
	r := ask[*kmsg.IncrementalAlterConfigsResponse](w, incrementalOf(ofBroker, name, false, ops...)).Resources[0]
	wantCode(w.t, fmt.Sprintf("%v of broker %q (%s)", ops, name, deref(r.ErrorMessage)), r.ErrorCode, want)
	if want != nil && deref(r.ErrorMessage) == "<null>" {
		w.t.Errorf("%v: no message", ops)
	}
	if r.ResourceName != name || r.ResourceType != ofBroker {
		w.t.Errorf("answer for %v %q", r.ResourceType, r.ResourceName)
	}
}

// The other cases run beside these on the same broker, so only settings are changed
// that nothing else looks at.
var brokerConfigCases = []blackBoxCase{
	{"broker settings/for one, for all, and what is behind them", func(t *testing.T, b *target) {
		w := b.dial(t)
		id := fmt.Sprint(b.brokerID(w))
		topic := b.topic(t, 1)
		const key, def = "log.cleaner.min.cleanable.ratio", "0.5:DEFAULT_CONFIG"
		// Kafka 4.4 keeps min.insync.replicas for all, and refuses its removal.
		var kept []string
		for name, c := range described(w, ofBroker, "") {
			kept = append(kept, name, deref(c.Value))
		}
		settings := func(kv ...string) []string { return append(kv, kept...) }

		alterBroker(w, nil, "", incremental{opSet, key, "0.6"}, incremental{opSet, "log.cleaner.backoff.ms", "14000"})
		awaitChain(w, ofBroker, id, key, "0.6:DYNAMIC_DEFAULT_BROKER_CONFIG "+def)
		alterBroker(w, nil, id, incremental{opSet, key, "0.7"})
		awaitChain(w, ofBroker, id, key, "0.7:DYNAMIC_BROKER_CONFIG 0.6:DYNAMIC_DEFAULT_BROKER_CONFIG "+def)
		if c := described(w, ofBroker, id, key)[key]; c.Source != fromBroker || deref(c.Value) != "0.7" || c.ReadOnly || c.IsSensitive || c.ConfigType != kmsg.ConfigTypeDouble {
			t.Errorf("%+v", c)
		}
		// A topic's own setting stands before the broker's.
		awaitChain(w, ofTopic, topic.name, "min.cleanable.dirty.ratio", "0.7:DYNAMIC_BROKER_CONFIG 0.6:DYNAMIC_DEFAULT_BROKER_CONFIG "+def)
		r := ask[*kmsg.IncrementalAlterConfigsResponse](w, incrementalOf(ofTopic, topic.name, false, incremental{opSet, "min.cleanable.dirty.ratio", "0.8"})).Resources[0]
		wantCode(t, "the topic's own", r.ErrorCode, nil)
		awaitChain(w, ofTopic, topic.name, "min.cleanable.dirty.ratio", "0.8:DYNAMIC_TOPIC_CONFIG 0.7:DYNAMIC_BROKER_CONFIG 0.6:DYNAMIC_DEFAULT_BROKER_CONFIG "+def)

		// Of all brokers only what is set for them is described.
		all := described(w, ofBroker, "")
		if c := all[key]; len(all) != 2+len(kept)/2 || deref(c.Value) != "0.6" || c.Source != fromAll || chainOf(c) != "0.6:DYNAMIC_DEFAULT_BROKER_CONFIG" || c.ReadOnly {
			t.Errorf("%+v", all)
		}
		if some := described(w, ofBroker, "", key, "num.partitions"); len(some) != 1 {
			t.Errorf("%+v", some)
		}
		// An entry of another program is kept; its value may be a secret.
		alterBroker(w, nil, id, incremental{opSet, "my.plugin.secret", "hunter2"})
		awaitChain(w, ofBroker, id, "my.plugin.secret", "<null>:DYNAMIC_BROKER_CONFIG")
		if c := described(w, ofBroker, id)["my.plugin.secret"]; !c.IsSensitive || c.Value != nil || !c.ReadOnly {
			t.Errorf("%+v", c)
		}

		// Dry runs change nothing.
		dry := ask[*kmsg.IncrementalAlterConfigsResponse](w, incrementalOf(ofBroker, id, true, incremental{opDelete, key, ""}, incremental{opAppend, "log.cleanup.policy", "compact"})).Resources[0]
		wantCode(t, "a dry run", dry.ErrorCode, nil)
		wantCode(t, "a dry run", ask[*kmsg.AlterConfigsResponse](w, alterOf(ofBroker, "", true, kept...)).Resources[0].ErrorCode, nil)
		// The old call replaces the whole set.
		wantCode(t, "alter", ask[*kmsg.AlterConfigsResponse](w, alterOf(ofBroker, "", false, settings(key, "0.65")...)).Resources[0].ErrorCode, nil)
		awaitChain(w, ofBroker, id, key, "0.7:DYNAMIC_BROKER_CONFIG 0.65:DYNAMIC_DEFAULT_BROKER_CONFIG "+def)
		awaitChain(w, ofBroker, id, "log.cleaner.backoff.ms", "15000:DEFAULT_CONFIG")
		alterBroker(w, nil, id, incremental{opDelete, key, ""}, incremental{opDelete, "message.max.bytes", ""}) // the second was never set
		awaitChain(w, ofBroker, id, key, "0.65:DYNAMIC_DEFAULT_BROKER_CONFIG "+def)
		wantCode(t, "none", ask[*kmsg.AlterConfigsResponse](w, alterOf(ofBroker, id, false)).Resources[0].ErrorCode, nil)
		wantCode(t, "none", ask[*kmsg.AlterConfigsResponse](w, alterOf(ofBroker, "", false, kept...)).Resources[0].ErrorCode, nil)
		awaitChain(w, ofBroker, id, key, def)
		Await(t, 10*time.Second, "nothing set for all", func() error {
			if all := described(w, ofBroker, ""); len(all) != len(kept)/2 {
				return fmt.Errorf("%+v", all)
			}
			return nil
		})
		if c := described(w, ofBroker, id, "my.plugin.secret"); len(c) != 0 {
			t.Errorf("%+v", c)
		}
	}},
	{"broker settings/refusals", func(t *testing.T, b *target) {
		w := b.dial(t)
		id := fmt.Sprint(b.brokerID(w))
		for _, name := range []string{id, ""} {
			for _, op := range []incremental{
				{opSet, "log.cleaner.io.max.bytes.per.second", "abc"}, {opSet, "log.retention.ms", "0"}, {opSet, "log.message.timestamp.type", "Never"},
				{opSet, "broker.id", "7"}, {opSet, "log.dirs", "/tmp"}, {opSet, "auto.create.topics.enable", "false"}, {opSet, "zookeeper.connect", "x"},
				{opSet, "num.replica.fetchers", "3"}, {opSet, "num.replica.fetchers", "0"}, {opSet, "log.cleaner.threads", "9"},
				{opSet, "ssl.keystore.location", "x"}, {opSet, "log.retention.ms", "<null>"}, {9, "log.retention.ms", "1"},
				{opAppend, "log.cleanup.policy", "nonsense"},
			} {
				if b.kafka && op.key == "zookeeper.connect" {
					continue // 4.x has never heard of it
				}
				alterBroker(w, kerr.InvalidRequest, name, op)
			}
			alterBroker(w, kerr.InvalidConfig, name, incremental{opAppend, "log.retention.ms", "1"})
			alterBroker(w, kerr.InvalidConfig, name, incremental{opSubtract, "message.max.bytes", "1"})
			alterBroker(w, kerr.InvalidRequest, name, incremental{opSet, "log.cleaner.dedupe.buffer.size", "1000"})
			alterBroker(w, kerr.InvalidRequest, name, incremental{opSet, "log.retention.ms", "5"}, incremental{opSet, "log.retention.ms", "6"})
			// Nothing of a resource is applied when something of it is refused.
			alterBroker(w, kerr.InvalidRequest, name, incremental{opSet, "log.segment.delete.delay.ms", "50000"}, incremental{opSet, "broker.id", "7"})
			for what, req := range map[string]*kmsg.AlterConfigsRequest{
				"a value that is none": alterOf(ofBroker, name, false, "log.cleaner.io.max.bytes.per.second", "abc"), "a key that is fixed": alterOf(ofBroker, name, false, "broker.id", "7"),
				"a key twice": alterOf(ofBroker, name, false, "log.retention.ms", "5", "log.retention.ms", "6"),
			} {
				r := ask[*kmsg.AlterConfigsResponse](w, req).Resources[0]
				wantCode(t, what, r.ErrorCode, kerr.InvalidRequest)
			}
			if b.kafka {
				continue // it never answers when a resource is named twice
			}
			twice := alterOf(ofBroker, name, false)
			twice.Resources = append(twice.Resources, twice.Resources[0])
			for _, r := range ask[*kmsg.AlterConfigsResponse](w, twice).Resources {
				wantCode(t, "a resource twice", r.ErrorCode, kerr.InvalidRequest)
			}
		}
		for _, name := range []string{"99", "abc", "-1"} {
			alterBroker(w, kerr.InvalidRequest, name, incremental{opSet, "log.segment.delete.delay.ms", "50000"})
			r := ask[*kmsg.AlterConfigsResponse](w, alterOf(ofBroker, name, false, "log.segment.delete.delay.ms", "50000")).Resources[0]
			wantCode(t, "of broker "+name, r.ErrorCode, kerr.InvalidRequest)
		}
		if c := described(w, ofBroker, id, "log.segment.delete.delay.ms")["log.segment.delete.delay.ms"]; c.Source != byDefault {
			t.Errorf("%+v", c)
		}
	}},
	{"broker settings/the log's level", func(t *testing.T, b *target) {
		w := b.dial(t)
		id := fmt.Sprint(b.brokerID(w))
		const ofLogger = kmsg.ConfigResourceTypeBrokerLogger
		root, ok := described(w, ofLogger, id)["root"]
		if !ok || root.Source != kmsg.ConfigSourceDynamicBrokerLoggerConfig || root.ReadOnly || root.IsSensitive || len(root.ConfigSynonyms) != 0 {
			t.Fatalf("%+v", root)
		}
		level := deref(root.Value)
		if got := described(w, ofLogger, id, "no.such.logger"); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		for _, name := range []string{"", "99", "abc"} {
			r := ask[*kmsg.DescribeConfigsResponse](w, describeOf(4, ofLogger, name)).Resources[0]
			wantCode(t, "of broker "+name, r.ErrorCode, kerr.InvalidRequest)
		}
		alter := func(want *kerr.Error, name string, dry bool, ops ...incremental) {
			t.Helper()
			r := ask[*kmsg.IncrementalAlterConfigsResponse](w, incrementalOf(ofLogger, name, dry, ops...)).Resources[0]
			wantCode(t, fmt.Sprintf("%v (%s)", ops, deref(r.ErrorMessage)), r.ErrorCode, want)
		}
		alter(nil, id, false, incremental{opSet, "root", level})
		alter(nil, id, true, incremental{opSet, "root", "TRACE"})
		if now := deref(described(w, ofLogger, id, "root")["root"].Value); now != level {
			t.Errorf("a dry run made %s of %s", now, level)
		}
		alter(kerr.InvalidConfig, id, false, incremental{opSet, "root", "LOUD"})
		alter(kerr.InvalidConfig, id, false, incremental{opSet, "no.such.logger.at.all", "INFO"})
		alter(kerr.InvalidRequest, id, false, incremental{opDelete, "root", ""})
		alter(kerr.InvalidRequest, id, false, incremental{opAppend, "root", "INFO"})
		alter(kerr.InvalidRequest, "99", false, incremental{opSet, "root", "INFO"})
		wantCode(t, "the old call", ask[*kmsg.AlterConfigsResponse](w, alterOf(ofLogger, id, false, "root", "INFO")).Resources[0].ErrorCode, kerr.InvalidRequest)
	}},
	{"broker settings/what can be changed", func(t *testing.T, b *target) {
		w := b.dial(t)
		got := described(w, ofBroker, fmt.Sprint(b.brokerID(w)))
		for key, readOnly := range map[string]bool{
			"log.retention.ms": false, "log.segment.bytes": false, "message.max.bytes": false, "min.insync.replicas": false, "unclean.leader.election.enable": false,
			"compression.type": false, "log.message.timestamp.type": false, "num.replica.fetchers": false, "num.recovery.threads.per.data.dir": false,
			"max.connections": false, "max.connections.per.ip": false, "log.cleaner.threads": false, "producer.id.expiration.ms": false,
			"broker.id": true, "log.dirs": true, "num.partitions": true, "replica.lag.time.max.ms": true, "auto.create.topics.enable": true,
			"log.retention.hours": true, "log.cleaner.enable": true, "offsets.topic.num.partitions": true,
		} {
			if c, ok := got[key]; !ok || c.ReadOnly != readOnly {
				t.Errorf("%s: read-only %v (%v), want %v", key, c.ReadOnly, ok, readOnly)
			}
		}
		for name, c := range got {
			if c.IsSensitive && c.Value != nil {
				t.Errorf("%s tells its value", name)
			}
		}
	}},
}
