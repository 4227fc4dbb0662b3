package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/recordbatch"
)

// committedOffset makes an offset as a commit does.
func committedOffset(partition int32, at int64, epoch int32, metadata string, committed, expires int64) *offset {
	o := &offset{offset: at, epoch: epoch, partition: partition, committed: committed}
	o.annotate(metadata, expires)
	return o
}

// FuzzDecode feeds stored records of any content to the loader: nothing
// panics, and a group that was understood is written and read alike.
func FuzzDecode(f *testing.F) {
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
		if isOffsetKey(key) {
			return
		}
		e, err := decode(rec)
		if err != nil || e.value == nil {
			return
		}
		g := groups[e.group]
		again, err := decode(g.groupRecord())
		if err != nil || again.value.Generation != e.value.Generation || len(again.value.Members) != len(g.order) {
			t.Fatalf("%+v became %+v, %v", e.value, again.value, err)
		}
	})
}

// FuzzDecodeOffset holds what is read by hand against the generated code.
func FuzzDecodeOffset(f *testing.F) {
	for _, o := range []*offset{committedOffset(3, 9, 2, "m", 5, noExpiry), committedOffset(3, 9, -1, "", 5, 77)} {
		r := offsetRecord("g", "t", o)
		f.Add(r.Key, r.Value)
	}
	for v := range int16(5) {
		value := kmsg.OffsetCommitValue{Version: v, Offset: 7, LeaderEpoch: 4, Metadata: "x", CommitTimestamp: 8, ExpireTimestamp: 9, TopicID: [16]byte{1}}
		f.Add(offsetRecordKey("g", "t", 1), value.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if !isOffsetKey(key) {
			return
		}
		e, err := decodeOffset(key, value)
		var k kmsg.OffsetCommitKey
		var v kmsg.OffsetCommitValue
		kerr := k.ReadFrom(key)
		if kerr == nil && value != nil {
			kerr = v.ReadFrom(value)
		}
		if err != nil {
			// Lengths below 0 stand for null, which neither field may be: kmsg takes them for empty.
			return
		}
		if kerr != nil {
			t.Fatalf("%+v where kmsg says %v", e, kerr)
		}
		if string(e.group) != k.Group || string(e.topic) != k.Topic || e.partition != k.Partition || e.tombstone != (value == nil) {
			t.Fatalf("%+v where kmsg has %+v", e, k)
		}
		if value == nil {
			return
		}
		expires, epoch := int64(noExpiry), int32(-1)
		if v.Version == offsetValueExpiring {
			expires = v.ExpireTimestamp
		}
		if v.Version >= 3 {
			epoch = v.LeaderEpoch
		}
		if e.offset.offset != v.Offset || e.epoch != epoch || e.metadata() != v.Metadata || e.committed != v.CommitTimestamp || e.expires() != expires {
			t.Fatalf("%+v, %q where kmsg has %+v", e, e.metadata(), v)
		}
		r := offsetRecord(string(e.group), string(e.topic), &e.offset)
		again, err := decodeOffset(r.Key, r.Value)
		if err != nil || again.offset.offset != e.offset.offset || again.metadata() != e.metadata() || again.committed != e.committed || again.expires() != e.expires() {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}

// Another make's records count like ours: nothing that kmsg reads is refused.
func TestOffsetRecordsOfEachVersionAreRead(t *testing.T) {
	for v := range int16(5) {
		value := kmsg.OffsetCommitValue{Version: v, Offset: 7, LeaderEpoch: 4, Metadata: "x", CommitTimestamp: 8, ExpireTimestamp: 9, TopicID: [16]byte{1}}
		e, err := decodeOffset(offsetRecordKey("g", "t", 1), value.AppendTo(nil))
		if err != nil || e.offset.offset != 7 || e.metadata() != "x" || e.committed != 8 || (e.epoch == 4) != (v >= 3) || (e.expires() == 9) != (v == 1) {
			t.Errorf("v%d: %+v, %v", v, e, err)
		}
	}
}

// What goes through a record batch comes back as it was; a tombstone stays one.
func TestRecordsSurviveABatch(t *testing.T) {
	g := newGroup(nil, nil, "g")
	g.generation = 7
	in := []coordinator.Record{
		offsetRecord("g", "t", committedOffset(1, 5, 3, "x", 9, noExpiry)),
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
	l.group([]byte("g")).offsets.put("t", offset{partition: 2})
	if err := recordbatch.Records(b, func(r recordbatch.Record) error {
		l.Add(coordinator.Logged{Record: r, Producer: coordinator.NoTransaction})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	groups, _ := l.Entities()
	if len(groups) != 1 || groups["g"].generation != 7 || groups["g"].offsets.len() != 1 {
		t.Fatalf("%+v", groups)
	}
	if o := groups["g"].offsets.get("t", 1); o == nil || o.offset != 5 || o.epoch != 3 || o.metadata() != "x" || o.committed != 9 || o.expires() != noExpiry {
		t.Errorf("%+v", o)
	}
}
