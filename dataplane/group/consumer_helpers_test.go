package group

import (
	"iter"
	"maps"
	"slices"

	"penstock/dataplane/protocol"
)

// fakeTopics are topics that do not change; with makes others.
type fakeTopics struct {
	parts map[string]int32
	ids   map[string]protocol.UUID
}

func newFakeTopics(parts map[string]int32) *fakeTopics {
	f := &fakeTopics{parts: parts, ids: make(map[string]protocol.UUID)}
	for name := range parts {
		f.ids[name] = fakeID(name, 0)
	}
	return f
}

func fakeID(name string, life byte) protocol.UUID {
	id := protocol.UUID{15: life}
	copy(id[:15], name)
	return id
}

func (f *fakeTopics) with(name string, n int32) *fakeTopics {
	g := &fakeTopics{maps.Clone(f.parts), maps.Clone(f.ids)}
	g.parts[name] = n
	if _, ok := g.ids[name]; !ok {
		g.ids[name] = fakeID(name, 0)
	}
	return g
}

func (f *fakeTopics) without(name string) *fakeTopics {
	g := &fakeTopics{maps.Clone(f.parts), maps.Clone(f.ids)}
	delete(g.parts, name)
	delete(g.ids, name)
	return g
}

func (f *fakeTopics) Topic(name string) (protocol.UUID, int32, bool) {
	n, ok := f.parts[name]
	return f.ids[name], n, ok
}

func (f *fakeTopics) Name(id protocol.UUID) (string, bool) {
	for name, i := range f.ids {
		if i == id {
			return name, true
		}
	}
	return "", false
}

func (f *fakeTopics) Names() iter.Seq[string] {
	return slices.Values(slices.Sorted(maps.Keys(f.parts)))
}
