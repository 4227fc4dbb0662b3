package config

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestGroupSettingsAreHeldAgainstTheBrokersBounds(t *testing.T) {
	b := mustNew(t, "group.consumer.max.session.timeout.ms", "90000", "group.consumer.session.timeout.ms", "60000")
	const set, del, app = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend
	op := func(name string, op kmsg.IncrementalAlterConfigOp, v string) []Op { return []Op{{name, op, &v}} }
	now := map[string]string{groupSession: "50000", "no.such": "1"}
	kept := maps.Clone(now)
	for _, c := range []struct {
		ops  []Op
		want map[string]string
		err  *kerr.Error
	}{
		{op(groupSession, set, " 90000 "), map[string]string{groupSession: "90000", "no.such": "1"}, nil},
		{op(groupSession, set, "90001"), nil, kerr.InvalidConfig},
		{op(groupSession, set, "44999"), nil, kerr.InvalidConfig},
		{op(groupSession, set, "-1"), nil, kerr.InvalidConfig},
		{op(groupSession, set, "soon"), nil, kerr.InvalidConfig},
		{op(groupSession, app, "50000"), nil, kerr.InvalidConfig},
		{op(groupSession, del, ""), map[string]string{"no.such": "1"}, nil},
		{op("no.such", set, "2"), nil, kerr.InvalidConfig},
		{op("no.such", del, ""), map[string]string{groupSession: "50000"}, nil},
		{op(groupHeartbeat, set, "15000"), map[string]string{groupSession: "50000", groupHeartbeat: "15000", "no.such": "1"}, nil},
		{op(groupHeartbeat, set, "15001"), nil, kerr.InvalidConfig},
		{op(groupAssignment, set, "0"), map[string]string{groupSession: "50000", groupAssignment: "0", "no.such": "1"}, nil},
		{append(op(groupHeartbeat, set, "6000"), op(groupHeartbeat, set, "7000")...), nil, kerr.InvalidRequest},
		{[]Op{{groupHeartbeat, set, nil}}, nil, kerr.InvalidRequest},
	} {
		got, err := b.AlterGroup(now, c.ops)
		if c.err == nil && (err != nil || !maps.Equal(got, c.want)) || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%+v: %v, %v", c.ops, got, err)
		}
	}
	if !maps.Equal(now, kept) {
		t.Errorf("the settings given were changed: %v", now)
	}
	if got := b.Group(now); got != (Group{50 * time.Second, 5 * time.Second, time.Second}) {
		t.Errorf("%+v", got)
	}
	// Written by somebody else, or under other bounds.
	if got := b.Group(map[string]string{groupSession: "1000", groupHeartbeat: "x", groupAssignment: "99999"}); got != (Group{45 * time.Second, 5 * time.Second, 15 * time.Second}) {
		t.Errorf("%+v", got)
	}
	for _, e := range b.DescribeGroup(now, nil) {
		if e.Name == groupSession && (*e.Value != "50000" || e.Source != kmsg.ConfigSourceGroupConfig || len(e.Synonyms) != 3) {
			t.Errorf("%+v", e)
		}
		if e.Name == groupHeartbeat && (*e.Value != "5000" || e.Source != kmsg.ConfigSourceDefaultConfig || e.Synonyms[0].Name != "group."+groupHeartbeat) {
			t.Errorf("%+v", e)
		}
	}
	// A heartbeat that is not below the session timeout would fence everybody.
	wide := mustNew(t, "group.consumer.min.session.timeout.ms", "6000", "group.consumer.session.timeout.ms", "45000")
	if _, err := wide.AlterGroup(map[string]string{groupHeartbeat: "10000"}, op(groupSession, set, "10000")); !errors.Is(err, kerr.InvalidConfig) || !strings.Contains(err.Error(), "less than") {
		t.Errorf("%v", err)
	}
}
