package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/recordbatch"
)

// FuzzDecode feeds stored records of any content to the loader: nothing
// panics, and a group that was understood is written and read alike.
func FuzzDecode(f *testing.F) {
	o := offsetRecord("g", "t", 3, offset{offset: 9, epoch: 2, metadata: "m", committed: 5, expires: noExpiry})
	f.Add(o.Key, o.Value)
	o = offsetRecord("g", "t", 3, offset{offset: 9, epoch: -1, committed: 5, expires: 77})
	f.Add(o.Key, o.Value)
	g := newGroup(nil, nil, "g")
	g.protocolType, g.generation, g.leader, g.protocol = "consumer", 4, "m", new("range")
	g.order = []*member{{id: "m", instanceID: new("i"), protocols: []groupProtocol{{"range", []byte("s")}}, assignment: []byte("a")}}
	gr := g.groupRecord()
	f.Add(gr.Key, gr.Value)
	f.Add([]byte{0, 3}, []byte{0})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		rec := coordinator.Record{Key: key, Value: value}
		l := newLoader(nil, nil)
		l.Add(coordinator.Logged{Record: rec, Producer: coordinator.NoTransaction})
		groups, _ := l.Entities()
		e, err := decode(rec)
		if err != nil {
			return
		}
		if !e.isGroup {
			if e.offset == nil {
				return
			}
			again, err := decode(offsetRecord(e.group, e.topic, e.partition, *e.offset))
			if err != nil || again.group != e.group || again.topic != e.topic || again.partition != e.partition {
				t.Fatalf("%+v became %+v, %v", e, again, err)
			}
			if again.offset.offset != e.offset.offset || again.offset.metadata != e.offset.metadata || again.offset.committed != e.offset.committed {
				t.Fatalf("%+v became %+v", e.offset, again.offset)
			}
			return
		}
		if e.value == nil {
			return
		}
		g := groups[e.group]
		again, err := decode(g.groupRecord())
		if err != nil || again.value.Generation != e.value.Generation || len(again.value.Members) != len(g.order) {
			t.Fatalf("%+v became %+v, %v", e.value, again.value, err)
		}
	})
}

// What goes through a record batch comes back as it was; a tombstone stays one.
func TestRecordsSurviveABatch(t *testing.T) {
	g := newGroup(nil, nil, "g")
	g.generation = 7
	in := []coordinator.Record{
		offsetRecord("g", "t", 1, offset{offset: 5, epoch: 3, metadata: "x", committed: 9, expires: noExpiry}),
		g.groupRecord(),
		{Key: groupRecordKey("gone")},
		{Key: offsetRecordKey("g", "t", 2)},
	}
	b, err := recordbatch.Build(recordbatch.BuildOptions{}, in)
	if err != nil {
		t.Fatal(err)
	}
	l := newLoader(nil, nil)
	l.values["gone"] = new(kmsg.GroupMetadataValue)
	setOffset(l.topics("g"), "t", 2, offset{})
	if err := recordbatch.Records(b, func(r recordbatch.Record) error {
		l.Add(coordinator.Logged{Record: r, Producer: coordinator.NoTransaction})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	groups, _ := l.Entities()
	if len(groups) != 1 || groups["g"].generation != 7 || len(groups["g"].offsets["t"]) != 1 {
		t.Fatalf("%+v", groups)
	}
	if o := groups["g"].offsets["t"][1]; o.offset != 5 || o.epoch != 3 || o.metadata != "x" || o.committed != 9 || o.expires != noExpiry {
		t.Errorf("%+v", o)
	}
}
