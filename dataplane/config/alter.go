package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Op is one change of IncrementalAlterConfigs.
type Op struct {
	Name  string
	Op    kmsg.IncrementalAlterConfigOp
	Value *string // nil is right for DELETE only
}

// AlterTopic applies changes to a topic's overrides and checks the outcome.
// The given map is not touched: on an error nothing has changed. The error has
// INVALID_CONFIG or INVALID_REQUEST in its chain and a text for the client.
func (b *Broker) AlterTopic(current map[string]string, ops []Op) (map[string]string, error) {
	out, seen, err := apply(current, ops, func(name string) *key { return topicIndex[name] }, b.topicDefault)
	if err != nil {
		return nil, err
	}
	for name := range seen {
		if topicIndex[name] == nil {
			return nil, fmt.Errorf("%w: no such topic setting: %s", kerr.InvalidConfig, clip(name))
		}
	}
	if err := fits(out); err != nil {
		return nil, fmt.Errorf("%w: %w", kerr.InvalidConfig, err)
	}
	// Only the outcome is checked: an old bad value of a key that is not
	// touched must not stop the change that would mend another.
	if err := b.validateTouched(out, seen); err != nil {
		return nil, err
	}
	return out, nil
}

// apply makes the changes in a copy of current and tells which keys they name.
// Lists that are appended to begin as what base says of a key that is not set.
func apply(current map[string]string, ops []Op, find func(name string) *key, base func(*key) string) (out map[string]string, named map[string]bool, err error) {
	out = maps.Clone(current)
	if out == nil {
		out = make(map[string]string)
	}
	named = make(map[string]bool, len(ops))
	for _, op := range ops {
		if named[op.Name] {
			return nil, nil, fmt.Errorf("%w: %s is named twice", kerr.InvalidRequest, clip(op.Name))
		}
		named[op.Name] = true
		if op.Value == nil && op.Op != kmsg.IncrementalAlterConfigOpDelete {
			return nil, nil, fmt.Errorf("%w: %s has no value", kerr.InvalidRequest, clip(op.Name))
		}
		switch op.Op {
		case kmsg.IncrementalAlterConfigOpSet:
			out[op.Name] = *op.Value
		case kmsg.IncrementalAlterConfigOpDelete:
			delete(out, op.Name)
		case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
			k := find(op.Name)
			if k == nil || k.typ != tList {
				return nil, nil, fmt.Errorf("%w: %s is not a list: it can only be set or deleted", kerr.InvalidConfig, clip(op.Name))
			}
			have, ok := out[op.Name]
			if !ok {
				have = base(k)
			}
			out[op.Name] = changeList(have, *op.Value, op.Op == kmsg.IncrementalAlterConfigOpAppend)
		default:
			return nil, nil, fmt.Errorf("%w: unknown operation %d", kerr.InvalidRequest, op.Op)
		}
	}
	return out, named, nil
}

// ReplaceTopic is the old AlterConfigs: the given settings become the whole
// set. Values of nil are refused.
func (b *Broker) ReplaceTopic(settings []Op) (map[string]string, error) {
	return b.AlterTopic(nil, allSet(settings))
}

func allSet(settings []Op) []Op {
	settings = slices.Clone(settings)
	for i := range settings {
		settings[i].Op = kmsg.IncrementalAlterConfigOpSet
	}
	return settings
}

// mostKept bounds what is kept of one topic or broker, as it is written to ZooKeeper,
// which hangs up on whoever sends a larger znode than 1 MiB, again and again.
const mostKept = 1_000_000

func fits(entries map[string]string) error {
	size := 0
	for k, v := range entries {
		size += len(k) + len(v)
	}
	if size <= mostKept {
		text, _ := json.Marshal(entries) // what has to be escaped grows
		size = len(text)
	}
	if size > mostKept {
		return fmt.Errorf("the settings take %d bytes, at most %d can be kept", size, mostKept)
	}
	return nil
}

func (b *Broker) validateTouched(overrides map[string]string, touched map[string]bool) error {
	err := b.ValidateTopic(overrides)
	if err == nil {
		return nil
	}
	var mine TopicErrors
	for _, ke := range err.(TopicErrors) {
		// Rules that span keys are reported at one of them.
		spans := ke.Key == "max.compaction.lag.ms" && touched["min.compaction.lag.ms"]
		if touched[ke.Key] || spans {
			mine = append(mine, ke)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", kerr.InvalidConfig, mine)
}

func changeList(have, change string, add bool) string {
	list := splitList(have)
	for _, e := range splitList(change) {
		switch {
		case add && !slices.Contains(list, e):
			list = append(list, e)
		case !add:
			list = slices.DeleteFunc(list, func(x string) bool { return x == e })
		}
	}
	return strings.Join(list, ",")
}
