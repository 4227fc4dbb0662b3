package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var groupConfigCases = []blackBoxCase{
	{"GroupConfigs/the settings of a group are set, told, used and taken back", func(t *testing.T, b *target) {
		const ofGroup, fromGroup = kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigSourceGroupConfig
		const session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
		w, topic, group := b.dial(t), b.topic(t, 1), b.name("group/with a name of its own ")
		b.coordinator(t, group)
		alter := func(want *kerr.Error, group string, dry bool, ops ...incremental) {
			t.Helper()
			r := ask[*kmsg.IncrementalAlterConfigsResponse](w, incrementalOf(ofGroup, group, dry, ops...)).Resources[0]
			wantCode(t, fmt.Sprint("alter ", ops), r.ErrorCode, want)
		}
		describe := func(keys ...string) map[string]kmsg.DescribeConfigsResponseResourceConfig {
			t.Helper()
			r := ask[*kmsg.DescribeConfigsResponse](w, describeOf(4, ofGroup, group, keys...)).Resources[0]
			wantCode(t, "describe", r.ErrorCode, nil)
			out := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
			for _, c := range r.Configs {
				out[c.Name] = c
			}
			return out
		}
		all := describe()
		for key, value := range map[string]string{session: "45000", heartbeat: "5000", "consumer.assignment.interval.ms": "1000"} {
			if c := all[key]; deref(c.Value) != value || c.Source != byDefault || c.ReadOnly || c.ConfigType != kmsg.ConfigTypeInt ||
				len(c.ConfigSynonyms) != 1 || c.ConfigSynonyms[0].Name != "group."+key {
				t.Errorf("%s: %+v", key, c)
			}
		}
		if got := describe(heartbeat, "no.such"); len(got) != 1 {
			t.Errorf("asked for one key that there is: %v", got)
		}
		r := ask[*kmsg.DescribeConfigsResponse](w, describeOf(4, ofGroup, "")).Resources[0]
		wantCode(t, "describe no group", r.ErrorCode, kerr.InvalidRequest)

		c := b.consumerOf(t, group, "AAAAAAAAAAAAAAAAAAAAAQ", topic.name)
		if got := c.mustBeat().HeartbeatIntervalMillis; got != 5000 {
			t.Errorf("heartbeat interval %d before", got)
		}
		alter(nil, group, false, incremental{opSet, session, "50000"}, incremental{opSet, heartbeat, "6000"})
		Await(t, 10*time.Second, "the group's own heartbeat interval", func() error {
			if got := c.mustBeat().HeartbeatIntervalMillis; got != 6000 {
				return fmt.Errorf("it is %d", got)
			}
			return nil
		})
		now := describe(session)[session]
		if deref(now.Value) != "50000" || now.Source != fromGroup || len(now.ConfigSynonyms) != 2 || now.ConfigSynonyms[0].Name != session || now.ConfigSynonyms[1].Name != "group."+session {
			t.Errorf("%+v", now)
		}
		for _, bad := range []struct {
			op   incremental
			want *kerr.Error
		}{
			{incremental{opSet, session, "44999"}, kerr.InvalidConfig},
			{incremental{opSet, session, "60001"}, kerr.InvalidConfig},
			{incremental{opSet, session, "soon"}, kerr.InvalidConfig},
			{incremental{opSet, heartbeat, "4999"}, kerr.InvalidConfig},
			{incremental{opSet, heartbeat, "15001"}, kerr.InvalidConfig},
			{incremental{opSet, heartbeat, "0"}, kerr.InvalidConfig},
			{incremental{opSet, heartbeat, "<null>"}, kerr.InvalidRequest},
			{incremental{opAppend, heartbeat, "6000"}, kerr.InvalidConfig},
			{incremental{opSet, "no.such", "1"}, kerr.InvalidConfig},
			{incremental{opDelete, "no.such", "<null>"}, nil},
			{incremental{opSet, "consumer.assignment.interval.ms", "15001"}, kerr.InvalidConfig},
		} {
			alter(bad.want, group, false, bad.op)
		}
		alter(kerr.InvalidRequest, group, false, incremental{opSet, heartbeat, "6000"}, incremental{opSet, heartbeat, "7000"})
		alter(kerr.InvalidRequest, "", false, incremental{opSet, heartbeat, "6000"})
		alter(nil, group, true, incremental{opSet, heartbeat, "7000"})
		alter(nil, b.name("group-that-is-not-there"), false, incremental{opSet, heartbeat, "7000"})
		alter(nil, group, false, incremental{opDelete, heartbeat, "<null>"})
		Await(t, 10*time.Second, "all groups' heartbeat interval", func() error {
			if got := c.mustBeat().HeartbeatIntervalMillis; got != 5000 {
				return fmt.Errorf("it is %d", got)
			}
			return nil
		})
		whole := ask[*kmsg.AlterConfigsResponse](w, alterOf(ofGroup, group, false, heartbeat, "5500")).Resources[0]
		wantCode(t, "the old call", whole.ErrorCode, nil)
		Await(t, 10*time.Second, "what the old call has set", func() error {
			if got := describe(session, heartbeat); deref(got[session].Value) != "45000" || deref(got[heartbeat].Value) != "5500" {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
	}},
}
