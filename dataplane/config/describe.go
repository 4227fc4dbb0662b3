package config

import (
	"slices"
	"sort"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Entry is one setting as DescribeConfigs reports it.
type Entry struct {
	Name      string
	Value     *string // nil: none, or sensitive
	Source    kmsg.ConfigSource
	Type      kmsg.ConfigType
	ReadOnly  bool
	Sensitive bool
	Doc       string
	Synonyms  []Synonym // strongest first; the first is where the value is from
}

// IsDefault is the field of DescribeConfigs v0, which has no source.
func (e *Entry) IsDefault() bool { return e.Source == kmsg.ConfigSourceDefaultConfig }

// Synonym is one link of the chain that a value was taken from.
type Synonym struct {
	Name   string
	Value  *string
	Source kmsg.ConfigSource
}

// DescribeTopic reports a topic's settings, sorted by name. none asks for
// all; unknown names are left out. An override is reported as such also when
// it equals the default.
func (b *Broker) DescribeTopic(overrides map[string]string, names []string) []Entry {
	return b.describeOwn(topicIndex, kmsg.ConfigSourceDynamicTopicConfig, overrides, names)
}

// describeOwn reports settings of something that falls back to the broker's.
func (b *Broker) describeOwn(idx map[string]*key, source kmsg.ConfigSource, overrides map[string]string, names []string) []Entry {
	var out []Entry
	for _, k := range pick(idx, names) {
		e := Entry{Name: k.name, Type: k.typ, Doc: k.doc, Source: kmsg.ConfigSourceDefaultConfig}
		value := b.topicDefault(k)
		if v, ok := overrides[k.name]; ok {
			value = v
			e.Synonyms = append(e.Synonyms, Synonym{k.name, &v, source})
		}
		e.Synonyms = append(e.Synonyms, b.chain(k.syn)...)
		if len(e.Synonyms) == 0 {
			e.Synonyms = []Synonym{{k.name, &k.def, kmsg.ConfigSourceDefaultConfig}}
		}
		e.Value, e.Source = &value, e.Synonyms[0].Source
		out = append(out, e)
	}
	return out
}

// DescribeBroker reports the broker's settings, sorted by name. names nil asks
// for all that the tables hold, for the listeners' own that are set, and for what
// else is kept for this broker, as settings of a Kafka broker's only, of which the
// name is told; unknown names are left out.
func (b *Broker) DescribeBroker(names []string) []Entry {
	var out []Entry
	for _, k := range pick(brokerIndex, names) {
		e := b.entry(k.name, k, b.chain(brokerSynonyms(k.name)))
		e.Value = nil // it may come from another unit's key, which reports it
		if v, ok := b.layers.raw(k.name); ok && !e.Sensitive {
			e.Value = &v
		}
		out = append(out, e)
	}
	seen := map[string]bool{}
	for _, m := range b.layers.strongestFirst() {
		for name := range m {
			if _, k, ok := splitPrefixed(name); ok && !seen[name] && wanted(names, name) {
				seen[name] = true
				out = append(out, b.entry(name, k, b.chain([]string{name})))
			}
		}
	}
	for _, name := range b.layers.othersOwn {
		if wanted(names, name) && brokerIndex[name] == nil {
			out = append(out, foreignEntry(name, kmsg.ConfigSourceDynamicBrokerConfig))
		}
	}
	for _, name := range b.layers.othersAll {
		if wanted(names, name) && brokerIndex[name] == nil && !slices.Contains(b.layers.othersOwn, name) {
			out = append(out, foreignEntry(name, kmsg.ConfigSourceDynamicDefaultBrokerConfig))
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// DescribeDefault reports the dynamic settings that are kept for all brokers, sorted
// by name.
func (b *Broker) DescribeDefault(names []string) []Entry {
	const source = kmsg.ConfigSourceDynamicDefaultBrokerConfig
	var out []Entry
	for name, v := range b.layers.cluster {
		if wanted(names, name) {
			out = append(out, b.entry(name, dynamicKey(name), []Synonym{{name, &v, source}}))
		}
	}
	for _, name := range b.layers.othersAll {
		if wanted(names, name) && brokerIndex[name] == nil {
			out = append(out, foreignEntry(name, source))
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// entry describes a broker's setting with the value that its chain begins with.
func (b *Broker) entry(name string, k *key, chain []Synonym) Entry {
	e := Entry{Name: name, Type: k.typ, Doc: k.doc, ReadOnly: dynamicKey(name) == nil, Sensitive: k.sensitive(), Source: kmsg.ConfigSourceDefaultConfig, Synonyms: chain}
	if len(chain) > 0 {
		e.Value, e.Source = chain[0].Value, chain[0].Source
	}
	return e
}

// foreignEntry is reported as Kafka does what it does not know: what type it has nobody knows, so it may be
// a secret.
func foreignEntry(name string, source kmsg.ConfigSource) Entry {
	return Entry{Name: name, Source: source, ReadOnly: true, Sensitive: true, Synonyms: []Synonym{{name, nil, source}}}
}

func wanted(names []string, name string) bool { return len(names) == 0 || slices.Contains(names, name) }

// brokerSynonyms are the keys that a broker key's value can come from: itself,
// and for the families by unit all members from the finest unit down.
func brokerSynonyms(name string) []string {
	for i := range topicKeys {
		syn := topicKeys[i].syn
		if len(syn) < 2 {
			continue
		}
		for j := range syn {
			if syn[j] == name && j == 0 {
				return syn
			}
		}
	}
	return []string{name}
}

// chain lists every layer in which one of the broker's keys has a value.
func (b *Broker) chain(keys []string) []Synonym {
	var out []Synonym
	add := func(m map[string]string, src kmsg.ConfigSource) {
		for _, name := range keys {
			if v, ok := m[name]; ok {
				out = append(out, synonym(name, v, src))
			}
		}
	}
	add(b.layers.perBroker, kmsg.ConfigSourceDynamicBrokerConfig)
	add(b.layers.cluster, kmsg.ConfigSourceDynamicDefaultBrokerConfig)
	add(b.layers.static, kmsg.ConfigSourceStaticBrokerConfig)
	for _, name := range keys {
		if k := brokerIndex[name]; k != nil && !k.null {
			out = append(out, synonym(name, k.def, kmsg.ConfigSourceDefaultConfig))
		}
	}
	return out
}

func synonym(name, v string, src kmsg.ConfigSource) Synonym {
	k := brokerIndex[name]
	if k == nil {
		_, k, _ = splitPrefixed(name)
	}
	if k == nil || k.sensitive() {
		return Synonym{name, nil, src}
	}
	return Synonym{name, &v, src}
}

// pick selects keys by name, each once, sorted; nil selects all.
func pick(idx map[string]*key, names []string) []*key {
	var out []*key
	if len(names) == 0 {
		for _, k := range idx {
			out = append(out, k)
		}
	} else {
		seen := make(map[string]bool, len(names))
		for _, n := range names {
			if k := idx[n]; k != nil && !seen[n] {
				seen[n] = true
				out = append(out, k)
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}
