package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// dynamicKey is the key that a name stands for in the dynamic settings, nil if it is
// not one that a running broker can change. Behind a listener's prefix, whose name is
// in lower case, that is max.connections and max.connection.creation.rate only.
func dynamicKey(name string) *key {
	k := brokerIndex[name]
	if k == nil {
		_, k, _ = splitPrefixed(name)
		if k != nil && (!strings.HasSuffix(name, ".max.connections") && !strings.HasSuffix(name, ".max.connection.creation.rate") || name != strings.ToLower(name)) {
			return nil
		}
	}
	if k == nil || !k.dynamic {
		return nil
	}
	return k
}

// foreign says whether a name is no setting of Kafka's nor of ours: it may belong to a
// program that keeps its own settings there, as Kafka allows.
func foreign(name string) bool {
	return brokerIndex[name] == nil && !kafkaOnly[name] && !strings.HasPrefix(name, listenerPrefix)
}

// WithDynamic builds a Broker of the same static settings with the dynamic ones that
// are kept for it (perBroker) and for all brokers (cluster). It never fails: what
// anybody may have written there must not stop a broker. In place of a bad value
// stays the one that b has of the key, if any; keys that cannot be changed while the
// broker runs are left out. The errors say which, without secrets.
func (b *Broker) WithDynamic(perBroker, cluster map[string]string) (*Broker, []error) {
	l := layers{static: b.layers.static}
	var errs, more []error
	l.perBroker, l.othersOwn, errs = sift(perBroker, b.layers.perBroker)
	for name := range l.perBroker {
		if dynamicKey(name).clusterWide {
			delete(l.perBroker, name)
			errs = append(errs, fmt.Errorf("%s is for all brokers only: ignored for this one", name))
		}
	}
	l.cluster, l.othersAll, more = sift(cluster, b.layers.cluster)
	errs = append(errs, more...)
	n, err := build(l)
	if err == nil {
		return n, errs
	}
	n, more = b.together(l)
	return n, append(errs, more...)
}

// sift takes the entries of one layer that are good by themselves.
func sift(entries, last map[string]string) (good map[string]string, others []string, errs []error) {
	good = make(map[string]string, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		k := dynamicKey(name)
		if k == nil {
			others = append(others, name)
			if !foreign(name) {
				errs = append(errs, fmt.Errorf("%s cannot be changed while this broker runs: ignored", clip(name)))
			}
			continue
		}
		v, err := k.parse(entries[name])
		if err == nil {
			good[name] = v
			continue
		}
		if v, ok := last[name]; ok {
			good[name] = v
			err = fmt.Errorf("%w: %q stays", err, clip(v))
		}
		errs = append(errs, err)
	}
	return good, others, errs
}

// together finds what can be had of layers whose values are right one by one but do
// not all go together: first what b has, then the rest as far as it goes.
func (b *Broker) together(want layers) (*Broker, []error) {
	type entry struct {
		own         bool
		name, value string
	}
	var first, rest []entry
	add := func(m, last map[string]string, own bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			e := entry{own, name, m[name]}
			if was, ok := last[name]; ok && was == e.value {
				first = append(first, e)
			} else {
				rest = append(rest, e)
			}
		}
	}
	add(want.perBroker, b.layers.perBroker, true)
	add(want.cluster, b.layers.cluster, false)
	pending := append(first, rest...)

	have := want
	have.perBroker, have.cluster = map[string]string{}, map[string]string{}
	best, err := build(have)
	if err != nil {
		return b, []error{err} // BUG: b was built of the same static settings
	}
	var last error
	for progress := true; progress; {
		progress = false
		pending = slices.DeleteFunc(pending, func(e entry) bool {
			try := have
			m := &try.cluster
			if e.own {
				m = &try.perBroker
			}
			*m = maps.Clone(*m)
			(*m)[e.name] = e.value
			n, err := build(try)
			if err != nil {
				last = err
				return false
			}
			best, have, progress = n, try, true
			return true
		})
	}
	var errs []error
	for _, e := range pending {
		errs = append(errs, fmt.Errorf("%s does not go together with the other settings: ignored: %w", e.name, last))
	}
	return best, errs
}

// AlterBroker applies changes to the dynamic settings that are kept for this broker,
// or with all for all brokers, and checks what would be in force here. The given map
// is not touched. The error has INVALID_REQUEST in its chain, as Kafka has it for
// brokers, or INVALID_CONFIG where a list is expected, and a text for the client.
func (b *Broker) AlterBroker(current map[string]string, ops []Op, all bool) (map[string]string, error) {
	return b.alterBroker(current, current, ops, all)
}

// ReplaceBroker is the old AlterConfigs: the given settings become the whole set in
// place of current.
func (b *Broker) ReplaceBroker(current map[string]string, settings []Op, all bool) (map[string]string, error) {
	return b.alterBroker(current, nil, allSet(settings), all)
}

func (b *Broker) alterBroker(current, base map[string]string, ops []Op, all bool) (map[string]string, error) {
	out, named, err := apply(base, ops, dynamicKey, func(k *key) string { v, _ := b.layers.raw(k.name); return v })
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		k := dynamicKey(name)
		if k == nil {
			if !foreign(name) {
				faults = append(faults, clip(name)+" cannot be changed while the broker runs")
			}
			continue
		}
		if k.clusterWide && !all {
			if _, set := out[name]; set {
				faults = append(faults, name+" can be set for all brokers only")
			}
			continue
		}
		if v, set := out[name]; set {
			if _, err := k.parse(v); err != nil {
				faults = append(faults, err.Error())
			}
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: %s", kerr.InvalidRequest, strings.Join(faults, "; "))
	}
	if err := fits(out); err != nil {
		return nil, fmt.Errorf("%w: %w", kerr.InvalidRequest, err)
	}
	if err := b.mayBecome(current, out, all); err != nil {
		return nil, err
	}
	return out, nil
}

// mayBecome judges what spans settings. What is wrong already stops no change.
func (b *Broker) mayBecome(before, after map[string]string, all bool) error {
	strict := func(entries map[string]string) (*Broker, error) {
		l := b.layers
		if good, _, _ := sift(entries, nil); all {
			l.cluster = good
		} else {
			l.perBroker = good
		}
		return build(l)
	}
	n, err := strict(after)
	if err != nil {
		if _, was := strict(before); was != nil {
			return nil
		}
		return fmt.Errorf("%w: %w", kerr.InvalidRequest, err)
	}
	for _, c := range []struct {
		name     string
		was, now int
	}{
		{"log.cleaner.threads", b.CleanerThreads, n.CleanerThreads},
		{"num.recovery.threads.per.data.dir", b.RecoveryThreadsPerDir, n.RecoveryThreadsPerDir},
		{"num.replica.fetchers", b.ReplicaFetchers, n.ReplicaFetchers},
	} {
		// Kafka's rule: a slip of the hand must not multiply threads, nor leave none.
		if c.now != c.was && (c.now < 1 || c.now < c.was/2 || c.now > 2*c.was) {
			return fmt.Errorf("%w: %s=%d: it can be at least 1, and at one time be halved or doubled at most (now %d)", kerr.InvalidRequest, c.name, c.now, c.was)
		}
	}
	return nil
}

// Changed lists the dynamic settings whose value in force differs from o's, sorted.
func (b *Broker) Changed(o *Broker) []string {
	names := map[string]bool{}
	for _, m := range []map[string]string{b.layers.perBroker, b.layers.cluster, o.layers.perBroker, o.layers.cluster} {
		for name := range m {
			names[name] = true
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		v, _ := b.layers.raw(name)
		w, _ := o.layers.raw(name)
		if v != w {
			out = append(out, name)
		}
	}
	return out
}
