package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func describeOf(version int16, typ kmsg.ConfigResourceType, name string, keys ...string) *kmsg.DescribeConfigsRequest {
	req := at(kmsg.NewPtrDescribeConfigsRequest(), version)
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = typ, name, keys
	req.Resources, req.IncludeSynonyms = append(req.Resources, r), true
	return req
}

// setting describes one key of a topic, with its synonyms.
func setting(w *wire, topic, key string) kmsg.DescribeConfigsResponseResourceConfig {
	w.t.Helper()
	r := ask[*kmsg.DescribeConfigsResponse](w, describeOf(4, kmsg.ConfigResourceTypeTopic, topic, key)).Resources[0]
	if r.ErrorCode != 0 || len(r.Configs) != 1 {
		w.t.Fatalf("%s of %s: %v with %d settings", key, topic, kerr.ErrorForCode(r.ErrorCode), len(r.Configs))
	}
	return r.Configs[0]
}

// awaitSetting waits until a key has this value and source.
func awaitSetting(w *wire, topic, key, value string, source kmsg.ConfigSource) {
	w.t.Helper()
	Await(w.t, 10*time.Second, fmt.Sprintf("%s=%s of %s", key, value, topic), func() error {
		c := setting(w, topic, key)
		if c.Value == nil || *c.Value != value || c.Source != source {
			return fmt.Errorf("it is %q from %v", deref(c.Value), c.Source)
		}
		return nil
	})
}

func deref(s *string) string {
	if s == nil {
		return "<null>"
	}
	return *s
}

func alterOf(typ kmsg.ConfigResourceType, name string, dry bool, kv ...string) *kmsg.AlterConfigsRequest {
	req := at(kmsg.NewPtrAlterConfigsRequest(), 1)
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = typ, name
	for i := 0; i < len(kv); i += 2 {
		r.Configs = append(r.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: kv[i], Value: &kv[i+1]})
	}
	req.Resources, req.ValidateOnly = append(req.Resources, r), dry
	return req
}

type incremental struct {
	op         kmsg.IncrementalAlterConfigOp
	key, value string
}

func incrementalOf(typ kmsg.ConfigResourceType, name string, dry bool, ops ...incremental) *kmsg.IncrementalAlterConfigsRequest {
	req := at(kmsg.NewPtrIncrementalAlterConfigsRequest(), 1)
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = typ, name
	for _, op := range ops {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Op, c.Name, c.Value = op.op, op.key, &op.value
		if op.value == "<null>" {
			c.Value = nil
		}
		r.Configs = append(r.Configs, c)
	}
	req.Resources, req.ValidateOnly = append(req.Resources, r), dry
	return req
}

const (
	opSet      = kmsg.IncrementalAlterConfigOpSet
	opDelete   = kmsg.IncrementalAlterConfigOpDelete
	opAppend   = kmsg.IncrementalAlterConfigOpAppend
	opSubtract = kmsg.IncrementalAlterConfigOpSubtract
	ofTopic    = kmsg.ConfigResourceTypeTopic
	ofBroker   = kmsg.ConfigResourceTypeBroker
	fromTopic  = kmsg.ConfigSourceDynamicTopicConfig
	byDefault  = kmsg.ConfigSourceDefaultConfig
)

var configCases = []blackBoxCase{
	{"DescribeConfigs/only what was asked, with where it comes from", func(t *testing.T, b *target) {
		topic := b.topic(t, 1, "retention.ms=604800000") // the default, set by hand
		w := b.dial(t)
		awaitSetting(w, topic.name, "retention.ms", "604800000", fromTopic)
		for v := int16(1); v < 5; v++ {
			r := ask[*kmsg.DescribeConfigsResponse](w, describeOf(v, ofTopic, topic.name, "retention.ms", "cleanup.policy", "no.such.key")).Resources[0]
			wantCode(t, "describe", r.ErrorCode, nil)
			if len(r.Configs) != 2 {
				t.Fatalf("v%d: %d settings, want 2", v, len(r.Configs))
			}
			for _, c := range r.Configs {
				switch c.Name {
				case "retention.ms":
					if c.Source != fromTopic || c.ReadOnly || c.IsSensitive || len(c.ConfigSynonyms) < pick(b, 2, 1) ||
						c.ConfigSynonyms[0].Name != "retention.ms" || c.ConfigSynonyms[0].Source != fromTopic || deref(c.ConfigSynonyms[0].Value) != "604800000" {
						t.Errorf("v%d: %+v", v, c)
					}
					if last := c.ConfigSynonyms[len(c.ConfigSynonyms)-1]; !b.kafka && (last.Source != byDefault || last.Name != "log.retention.hours" || deref(last.Value) != "168") {
						t.Errorf("v%d: the chain ends with %+v", v, last)
					}
					if v >= 3 && c.ConfigType != kmsg.ConfigTypeLong {
						t.Errorf("v%d: type %v", v, c.ConfigType)
					}
				case "cleanup.policy":
					if c.Source != byDefault || deref(c.Value) != "delete" || len(c.ConfigSynonyms) != 1 || c.ConfigSynonyms[0].Name != "log.cleanup.policy" {
						t.Errorf("v%d: %+v", v, c)
					}
					if v >= 3 && c.ConfigType != kmsg.ConfigTypeList {
						t.Errorf("v%d: type %v", v, c.ConfigType)
					}
				}
				if v < 3 && c.Documentation != nil {
					t.Errorf("v%d: documentation that was not asked for", v)
				}
			}
		}
	}},
	{"DescribeConfigs/all keys, documentation, no synonyms unless asked", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		req := describeOf(4, ofTopic, topic.name)
		req.Resources[0].ConfigNames, req.IncludeSynonyms, req.IncludeDocumentation = nil, false, true
		r := ask[*kmsg.DescribeConfigsResponse](w, req).Resources[0]
		if len(r.Configs) < 25 {
			t.Errorf("%d settings", len(r.Configs))
		}
		for _, c := range r.Configs {
			if len(c.ConfigSynonyms) != 0 || deref(c.Documentation) == "<null>" {
				t.Errorf("%+v", c)
			}
		}
		req.Resources[0].ConfigNames = []string{}
		if r := ask[*kmsg.DescribeConfigsResponse](w, req).Resources[0]; len(r.Configs) < 25 {
			t.Errorf("an empty list of keys: %d settings", len(r.Configs))
		}
	}},
	{"DescribeConfigs/brokers and refusals", func(t *testing.T, b *target) {
		w := b.dial(t)
		id := b.brokerID(w)
		r := ask[*kmsg.DescribeConfigsResponse](w, describeOf(4, ofBroker, fmt.Sprint(id), "num.partitions", "log.dirs")).Resources[0]
		wantCode(t, "broker", r.ErrorCode, nil)
		if len(r.Configs) != 2 {
			t.Errorf("%d settings", len(r.Configs))
		}
		for _, c := range r.Configs {
			if c.Name == "log.dirs" && (c.Source != kmsg.ConfigSourceStaticBrokerConfig || !c.ReadOnly) {
				t.Errorf("%+v", c)
			}
		}
		wantCode(t, "the defaults of all brokers", ask[*kmsg.DescribeConfigsResponse](w, describeOf(4, ofBroker, "")).Resources[0].ErrorCode, nil)
		for _, c := range []struct {
			typ  kmsg.ConfigResourceType
			name string
			want *kerr.Error
		}{
			{ofTopic, b.name("absent"), kerr.UnknownTopicOrPartition}, {ofTopic, "a/b", kerr.InvalidTopicException}, {ofTopic, "", kerr.InvalidTopicException},
			{ofBroker, "99", kerr.InvalidRequest}, {ofBroker, "abc", kerr.InvalidRequest}, {77, "x", kerr.InvalidRequest},
		} {
			r := ask[*kmsg.DescribeConfigsResponse](w, describeOf(4, c.typ, c.name)).Resources[0]
			wantCode(t, fmt.Sprintf("resource %v %q", c.typ, c.name), r.ErrorCode, c.want)
			if len(r.Configs) != 0 || r.ResourceName != c.name {
				t.Errorf("%+v", r)
			}
		}
	}},
	{"AlterConfigs/replaces the whole set", func(t *testing.T, b *target) {
		topic := b.topic(t, 1, "retention.ms=1000", "segment.ms=5000")
		w := b.dial(t)
		for v := range int16(3) {
			value := fmt.Sprint(2000 + v)
			wantCode(t, "alter", ask[*kmsg.AlterConfigsResponse](w, at(alterOf(ofTopic, topic.name, false, "retention.ms", value), v)).Resources[0].ErrorCode, nil)
			awaitSetting(w, topic.name, "retention.ms", value, fromTopic)
			awaitSetting(w, topic.name, "segment.ms", "604800000", byDefault)
		}
		wantCode(t, "dry run", ask[*kmsg.AlterConfigsResponse](w, alterOf(ofTopic, topic.name, true, "retention.ms", "7")).Resources[0].ErrorCode, nil)
		wantCode(t, "none", ask[*kmsg.AlterConfigsResponse](w, alterOf(ofTopic, topic.name, true)).Resources[0].ErrorCode, nil)
		awaitSetting(w, topic.name, "retention.ms", "2002", fromTopic)
		wantCode(t, "none", ask[*kmsg.AlterConfigsResponse](w, alterOf(ofTopic, topic.name, false)).Resources[0].ErrorCode, nil)
		awaitSetting(w, topic.name, "retention.ms", "604800000", byDefault)
	}},
	{"AlterConfigs/refusals leave the others alone", func(t *testing.T, b *target) {
		topic, good := b.topic(t, 1, "retention.ms=1000"), b.topic(t, 1)
		w := b.dial(t)
		for what, c := range map[string]struct {
			req  *kmsg.AlterConfigsRequest
			want *kerr.Error
		}{
			"a value that is none":  {alterOf(ofTopic, topic.name, false, "segment.ms", "1", "retention.ms", "abc"), kerr.InvalidConfig},
			"a policy that is none": {alterOf(ofTopic, topic.name, false, "cleanup.policy", "delet"), kerr.InvalidConfig},
			"an unknown key":        {alterOf(ofTopic, topic.name, false, "no.such.key", "1"), kerr.InvalidConfig},
			"a null value": {func() *kmsg.AlterConfigsRequest {
				r := alterOf(ofTopic, topic.name, false, "retention.ms", "1")
				r.Resources[0].Configs[0].Value = nil
				return r
			}(), kerr.InvalidRequest},
			"an unknown topic": {alterOf(ofTopic, b.name("absent"), false, "retention.ms", "1"), kerr.UnknownTopicOrPartition},
			"an unknown type":  {alterOf(77, "x", false, "retention.ms", "1"), kerr.InvalidRequest},
			"a key twice":      {alterOf(ofTopic, topic.name, false, "retention.ms", "1", "retention.ms", "2"), kerr.InvalidRequest},
		} {
			other := kmsg.NewAlterConfigsRequestResource()
			v := "4321"
			other.ResourceType, other.ResourceName = ofTopic, good.name
			other.Configs = append(other.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: "retention.ms", Value: &v})
			c.req.Resources = append(c.req.Resources, other)
			resp := ask[*kmsg.AlterConfigsResponse](w, c.req)
			for _, r := range resp.Resources {
				want := c.want
				if r.ResourceName == good.name {
					want = nil
				}
				wantCode(t, what+" of "+r.ResourceName, r.ErrorCode, want)
				if want != nil && deref(r.ErrorMessage) == "<null>" {
					t.Errorf("%s: no message", what)
				}
			}
			if len(resp.Resources) != 2 {
				t.Errorf("%s: %d answers", what, len(resp.Resources))
			}
			awaitSetting(w, good.name, "retention.ms", "4321", fromTopic)
			awaitSetting(w, topic.name, "retention.ms", "1000", fromTopic)
			awaitSetting(w, topic.name, "segment.ms", "604800000", byDefault)
		}
	}},
	{"IncrementalAlterConfigs/merges", func(t *testing.T, b *target) {
		topic := b.topic(t, 1, "retention.ms=1000")
		w := b.dial(t)
		alter := func(want *kerr.Error, dry bool, ops ...incremental) {
			t.Helper()
			for v := range int16(2) {
				if v == 0 && want == nil {
					continue
				}
				r := ask[*kmsg.IncrementalAlterConfigsResponse](w, at(incrementalOf(ofTopic, topic.name, dry, ops...), v)).Resources[0]
				wantCode(t, fmt.Sprint(ops), r.ErrorCode, want)
				if want != nil && !b.kafka && deref(r.ErrorMessage) == "<null>" {
					t.Errorf("%v: no message", ops)
				}
			}
		}
		alter(nil, false, incremental{opSet, "segment.ms", "5000"})
		awaitSetting(w, topic.name, "segment.ms", "5000", fromTopic)
		awaitSetting(w, topic.name, "retention.ms", "1000", fromTopic)
		alter(nil, true, incremental{opDelete, "segment.ms", ""})
		alter(nil, false, incremental{opDelete, "retention.ms", "<null>"})
		awaitSetting(w, topic.name, "retention.ms", "604800000", byDefault)
		awaitSetting(w, topic.name, "segment.ms", "5000", fromTopic)
		alter(nil, false, incremental{opAppend, "cleanup.policy", "compact"})
		awaitSetting(w, topic.name, "cleanup.policy", "delete,compact", fromTopic)
		alter(nil, false, incremental{opAppend, "cleanup.policy", "compact"})
		awaitSetting(w, topic.name, "cleanup.policy", "delete,compact", fromTopic)
		alter(nil, false, incremental{opSubtract, "cleanup.policy", "delete"})
		awaitSetting(w, topic.name, "cleanup.policy", "compact", fromTopic)
		alter(nil, false, incremental{opDelete, "max.message.bytes", "<null>"}) // was never set

		alter(kerr.InvalidConfig, false, incremental{opAppend, "retention.ms", "1"})
		alter(kerr.InvalidConfig, false, incremental{opSubtract, "retention.ms", "1"})
		alter(kerr.InvalidConfig, false, incremental{opSet, "segment.ms", "1"}, incremental{opSet, "retention.ms", "abc"})
		alter(kerr.InvalidConfig, false, incremental{opSet, "no.such.key", "1"})
		alter(kerr.InvalidRequest, false, incremental{opSet, "segment.ms", "1"}, incremental{opSet, "segment.ms", "2"})
		alter(kerr.InvalidRequest, false, incremental{opSet, "segment.ms", "<null>"})
		alter(pick(b, kerr.InvalidRequest, kerr.UnknownServerError), false, incremental{9, "segment.ms", "1"})
		awaitSetting(w, topic.name, "segment.ms", "5000", fromTopic)
	}},
	{"IncrementalAlterConfigs/refused resources", func(t *testing.T, b *target) {
		w := b.dial(t)
		topic := b.topic(t, 1)
		for _, c := range []struct {
			typ  kmsg.ConfigResourceType
			name string
			want *kerr.Error
		}{{ofTopic, b.name("absent"), kerr.UnknownTopicOrPartition}, {77, "x", kerr.InvalidRequest}} {
			r := ask[*kmsg.IncrementalAlterConfigsResponse](w, incrementalOf(c.typ, c.name, false, incremental{opSet, "retention.ms", "1"})).Resources[0]
			wantCode(t, fmt.Sprint(c.typ, c.name), r.ErrorCode, c.want)
		}
		req := incrementalOf(ofTopic, topic.name, false, incremental{opSet, "retention.ms", "1"})
		req.Resources = append(req.Resources, req.Resources[0])
		resp := ask[*kmsg.IncrementalAlterConfigsResponse](w, req)
		for _, r := range resp.Resources {
			wantCode(t, "a resource twice", r.ErrorCode, kerr.InvalidRequest)
		}
	}},
	{"settings take hold of a topic in use", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		mustProduce(w, topic.name, batch(t, string(make([]byte, 500))), 0)
		wantCode(t, "alter", ask[*kmsg.IncrementalAlterConfigsResponse](w, incrementalOf(ofTopic, topic.name, false, incremental{opSet, "max.message.bytes", "200"})).Resources[0].ErrorCode, nil)
		Await(t, 10*time.Second, "the limit", func() error {
			if c := produce(w, topic.name, batch(t, string(make([]byte, 500)))).ErrorCode; c != kerr.MessageTooLarge.Code {
				return fmt.Errorf("answer %v", kerr.ErrorForCode(c))
			}
			return nil
		})
	}},
}

// quotaEntry builds one entity of an AlterClientQuotas; parts are type, name.
func quotaEntry(ops map[string]float64, remove []string, parts ...*string) kmsg.AlterClientQuotasRequestEntry {
	e := kmsg.NewAlterClientQuotasRequestEntry()
	for i := 0; i < len(parts); i += 2 {
		p := kmsg.NewAlterClientQuotasRequestEntryEntity()
		p.Type, p.Name = *parts[i], parts[i+1]
		e.Entity = append(e.Entity, p)
	}
	for k, v := range ops {
		e.Ops = append(e.Ops, kmsg.AlterClientQuotasRequestEntryOp{Key: k, Value: v})
	}
	for _, k := range remove {
		e.Ops = append(e.Ops, kmsg.AlterClientQuotasRequestEntryOp{Key: k, Remove: true})
	}
	return e
}

func alterQuotas(w *wire, dry bool, entries ...kmsg.AlterClientQuotasRequestEntry) []kmsg.AlterClientQuotasResponseEntry {
	w.t.Helper()
	req := at(kmsg.NewPtrAlterClientQuotasRequest(), 1)
	req.Entries, req.ValidateOnly = entries, dry
	return ask[*kmsg.AlterClientQuotasResponse](w, req).Entries
}

// quotasOf describes; parts are type, match type, match.
func quotasOf(w *wire, strict bool, parts ...any) map[string]map[string]float64 {
	w.t.Helper()
	req := at(kmsg.NewPtrDescribeClientQuotasRequest(), 1)
	req.Strict = strict
	for i := 0; i < len(parts); i += 3 {
		c := kmsg.NewDescribeClientQuotasRequestComponent()
		c.EntityType, c.MatchType = parts[i].(string), kmsg.QuotasMatchType(parts[i+1].(int))
		if s, ok := parts[i+2].(string); ok {
			c.Match = &s
		}
		req.Components = append(req.Components, c)
	}
	resp := ask[*kmsg.DescribeClientQuotasResponse](w, req)
	if resp.ErrorCode != 0 {
		w.t.Fatalf("describing quotas: %v %s", kerr.ErrorForCode(resp.ErrorCode), deref(resp.ErrorMessage))
	}
	all := map[string]map[string]float64{}
	for _, e := range resp.Entries {
		name := ""
		for _, typ := range []string{"user", "client-id", "ip"} {
			for _, p := range e.Entity {
				if p.Type == typ {
					name += typ + "=" + deref(p.Name) + " "
				}
			}
		}
		all[name] = map[string]float64{}
		for _, v := range e.Values {
			all[name][v.Key] = v.Value
		}
	}
	return all
}

var quotaCases = []blackBoxCase{
	{"client quotas/are set, described and removed", func(t *testing.T, b *target) {
		w := b.dial(t)
		user, client := "user", "client-id"
		alice, app := b.name("alice"), b.name("app")
		for _, e := range alterQuotas(w, false,
			quotaEntry(map[string]float64{"producer_byte_rate": 1000, "request_percentage": 12.5}, nil, &user, &alice),
			quotaEntry(map[string]float64{"consumer_byte_rate": 2000}, nil, &user, &alice, &client, &app),
			quotaEntry(map[string]float64{"consumer_byte_rate": 3000}, nil, &client, &app),
			quotaEntry(map[string]float64{"consumer_byte_rate": 1e12}, nil, &user, &alice, &client, nil)) {
			wantCode(t, "set", e.ErrorCode, nil)
		}
		aliceOnly, both, appOnly, aliceDefault := "user="+alice+" ", "user="+alice+" client-id="+app+" ", "client-id="+app+" ", "user="+alice+" client-id=<null> "
		expect := func(what string, want map[string]string, strict bool, parts ...any) {
			t.Helper()
			Await(t, 10*time.Second, what, func() error {
				got := quotasOf(w, strict, parts...)
				if len(got) != len(want) {
					return fmt.Errorf("%v", got)
				}
				for k, v := range want {
					if fmt.Sprint(got[k]) != v {
						return fmt.Errorf("%s: %v, want %s", k, got[k], v)
					}
				}
				return nil
			})
		}
		const a, c, ac, ad = "map[producer_byte_rate:1000 request_percentage:12.5]", "map[consumer_byte_rate:3000]", "map[consumer_byte_rate:2000]", "map[consumer_byte_rate:1e+12]"
		expect("the user", map[string]string{aliceOnly: a, both: ac, aliceDefault: ad}, false, "user", 0, alice)
		expect("the user alone", map[string]string{aliceOnly: a}, true, "user", 0, alice)
		expect("user and client", map[string]string{both: ac}, true, "user", 0, alice, "client-id", 0, app)
		expect("user and any client", map[string]string{both: ac, aliceDefault: ad}, true, "user", 0, alice, "client-id", 2, nil)
		expect("user and the default client", map[string]string{aliceDefault: ad}, true, "user", 0, alice, "client-id", 1, nil)
		expect("the client alone", map[string]string{appOnly: c}, true, "client-id", 0, app)
		expect("the client", map[string]string{appOnly: c, both: ac}, false, "client-id", 0, app)

		for _, e := range alterQuotas(w, true, quotaEntry(nil, []string{"consumer_byte_rate"}, &client, &app)) {
			wantCode(t, "dry run", e.ErrorCode, nil)
		}
		expect("nothing after a dry run", map[string]string{appOnly: c}, true, "client-id", 0, app)
		for _, e := range alterQuotas(w, false, quotaEntry(nil, []string{"producer_byte_rate"}, &user, &alice),
			quotaEntry(nil, []string{"consumer_byte_rate"}, &client, &app), quotaEntry(nil, []string{"consumer_byte_rate"}, &user, &alice, &client, nil)) {
			wantCode(t, "remove", e.ErrorCode, nil)
		}
		expect("the rest", map[string]string{aliceOnly: "map[request_percentage:12.5]", both: ac}, false, "user", 0, alice)
		expect("nothing", map[string]string{}, true, "client-id", 0, app)
	}},
	{"client quotas/the default entity has a null name", func(t *testing.T, b *target) {
		w := b.dial(t)
		client := "client-id"
		// So high that the cases beside this one do not feel it.
		for _, e := range alterQuotas(w, false, quotaEntry(map[string]float64{"consumer_byte_rate": 1e12}, nil, &client, nil)) {
			wantCode(t, "set", e.ErrorCode, nil)
			if len(e.Entity) != 1 || e.Entity[0].Name != nil {
				t.Errorf("%+v", e)
			}
		}
		Await(t, 10*time.Second, "the default", func() error {
			if got := quotasOf(w, true, "client-id", 1, nil); fmt.Sprint(got) != "map[client-id=<null> :map[consumer_byte_rate:1e+12]]" {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
		alterQuotas(w, false, quotaEntry(nil, []string{"consumer_byte_rate"}, &client, nil))
		Await(t, 10*time.Second, "no default", func() error {
			if got := quotasOf(w, true, "client-id", 1, nil); len(got) != 0 {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
	}},
	{"client quotas/refusals", func(t *testing.T, b *target) {
		w := b.dial(t)
		user, client, other, empty, bob := "user", "client-id", "group", "", b.name("bob")
		ok := map[string]float64{"producer_byte_rate": 1000}
		for what, c := range map[string]struct {
			e    kmsg.AlterClientQuotasRequestEntry
			want *kerr.Error
		}{
			"an unknown key":       {quotaEntry(map[string]float64{"no_such_rate": 1}, nil, &user, &bob), kerr.InvalidRequest},
			"zero":                 {quotaEntry(map[string]float64{"producer_byte_rate": 0}, nil, &user, &bob), kerr.InvalidRequest},
			"negative":             {quotaEntry(map[string]float64{"producer_byte_rate": -1}, nil, &user, &bob), kerr.InvalidRequest},
			"a fraction of a byte": {quotaEntry(map[string]float64{"producer_byte_rate": 1.5}, nil, &user, &bob), kerr.InvalidRequest},
			"an unknown type":      {quotaEntry(ok, nil, &other, &bob), kerr.InvalidRequest},
			"no entity":            {quotaEntry(ok, nil), kerr.InvalidRequest},
			"a type twice":         {quotaEntry(ok, nil, &user, &bob, &user, &bob), pick(b, kerr.InvalidRequest, nil)},
			"an empty name":        {quotaEntry(ok, nil, &client, &empty), kerr.InvalidRequest},
		} {
			got := alterQuotas(w, false, c.e)
			if len(got) != 1 {
				t.Fatalf("%s: %d answers", what, len(got))
			}
			wantCode(t, what, got[0].ErrorCode, c.want)
		}
		if got := quotasOf(w, false, "user", 0, bob); len(got) != 0 && !b.kafka {
			t.Errorf("left behind: %v", got)
		}
		for what, c := range map[string]struct {
			typ   string
			match int8
			name  *string
			want  *kerr.Error
		}{
			"an unknown type": {"group", 0, &bob, kerr.UnsupportedVersion}, "an empty type": {"", 0, &bob, kerr.InvalidRequest},
			"an exact match of nothing": {"user", 0, nil, kerr.InvalidRequest}, "a default with a name": {"user", 1, &bob, kerr.InvalidRequest}, "an unknown match": {"user", 9, nil, kerr.InvalidRequest},
		} {
			req := at(kmsg.NewPtrDescribeClientQuotasRequest(), 1)
			p := kmsg.NewDescribeClientQuotasRequestComponent()
			p.EntityType, p.MatchType, p.Match = c.typ, kmsg.QuotasMatchType(c.match), c.name
			req.Components = append(req.Components, p)
			wantCode(t, what, ask[*kmsg.DescribeClientQuotasResponse](w, req).ErrorCode, c.want)
		}
	}},
}
