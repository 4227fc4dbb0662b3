package config

import (
	"slices"
	"sort"

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
	var out []Entry
	for _, k := range pick(topicIndex, names) {
		e := Entry{Name: k.name, Type: k.typ, Doc: k.doc, Source: kmsg.ConfigSourceDefaultConfig}
		value := b.topicDefault(k)
		if v, ok := overrides[k.name]; ok {
			value = v
			e.Synonyms = append(e.Synonyms, Synonym{k.name, &v, kmsg.ConfigSourceDynamicTopicConfig})
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
// for all that the tables hold and for the listeners' own that are set; unknown
// names are left out.
func (b *Broker) DescribeBroker(names []string) []Entry {
	var out []Entry
	for _, k := range pick(brokerIndex, names) {
		e := Entry{Name: k.name, Type: k.typ, Doc: k.doc, ReadOnly: !k.dynamic, Sensitive: k.sensitive(), Source: kmsg.ConfigSourceDefaultConfig}
		e.Synonyms = b.chain(brokerSynonyms(k.name))
		if len(e.Synonyms) > 0 {
			e.Source = e.Synonyms[0].Source
		}
		if v, ok := b.layers.raw(k.name); ok && !e.Sensitive {
			e.Value = &v
		}
		out = append(out, e)
	}
	out = append(out, b.describePrefixed(names)...)
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

func (b *Broker) describePrefixed(names []string) []Entry {
	want := func(string) bool { return true }
	if len(names) > 0 {
		want = func(n string) bool { return slices.Contains(names, n) }
	}
	var out []Entry
	for name, v := range b.layers.static {
		_, k, ok := splitPrefixed(name)
		if !ok || brokerIndex[name] != nil || !want(name) {
			continue
		}
		e := Entry{Name: name, Type: k.typ, Doc: k.doc, ReadOnly: true, Sensitive: k.sensitive(), Source: kmsg.ConfigSourceStaticBrokerConfig}
		if !e.Sensitive {
			e.Value = &v
		}
		e.Synonyms = []Synonym{{name, e.Value, e.Source}}
		out = append(out, e)
	}
	return out
}

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
	if k := brokerIndex[name]; k != nil && k.sensitive() {
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
