package group

import (
	"reflect"
	"testing"
	"time"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/group/assignor"
	"penstock/dataplane/protocol"
)

// consumerSamples are records of every kind.
func consumerSamples() []coordinator.Record {
	t := protocol.UUID{1, 2, 3}
	m := &consumerMember{id: "m", instance: new("i"), rack: new("r"), clientID: "c", host: "/h", rebalanceTimeout: time.Second, names: []string{"a", "b"},
		regex: "x.*", assignor: "range", classic: &classicSide{time.Minute, []groupProtocol{{"range", []byte("md")}}},
		epoch: 4, previous: 3, state: memberUnrevoked, has: holding{t: {0: 2, 5: 4}}, revoking: holding{t: {1: 3}}}
	k := func(kind uint16, name string) consumerKey { return consumerKey{kind, "g", name} }
	return []coordinator.Record{
		k(kindEpoch, "").record(epochValue{7, 99}.encode()),
		k(kindEpoch, "").record(epochValue{7, 0}.encode()),
		k(kindPartitions, "").record([]byte{0, 0, 1, 0}),
		k(kindMember, "m").record(m.encode()),
		k(kindMember, "n").record((&consumerMember{}).encode()),
		k(kindAssigned, "").record(assignedValue{7, 1234}.encode()),
		k(kindTarget, "m").record(encodeTarget(assignor.Assignment{t: {0, 5}})),
		k(kindCurrent, "m").record(m.current().encode()),
		k(kindRegex, "x.*").record(regexValue{[]string{"xa", "xb"}, 55}.encode()),
		k(kindMember, "m").record(nil),
	}
}

// encodeAny writes a value that was read.
func encodeAny(v any) []byte {
	switch v := v.(type) {
	case epochValue:
		return v.encode()
	case assignedValue:
		return v.encode()
	case currentValue:
		return v.encode()
	case regexValue:
		return v.encode()
	case assignor.Assignment:
		return encodeTarget(v)
	case *consumerMember:
		return v.encode()
	}
	return nil
}

// FuzzConsumerRecord feeds stored records of any content to the decoder and the loader:
// nothing panics, and what was understood is written and read alike.
func FuzzConsumerRecord(f *testing.F) {
	for _, r := range consumerSamples() {
		f.Add(r.Key, r.Value)
	}
	f.Add([]byte{0, 8, 0, 1, 'g', 0, 1, 'm'}, []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		l := newLoader(nil, nil)
		l.Add(coordinator.Logged{Record: coordinator.Record{Key: key, Value: value}, Producer: coordinator.NoTransaction})
		groups, _ := l.Entities()
		for _, g := range groups {
			if g.consumer != nil {
				g.consumer.mustHold(t)
			}
		}
		k, err := readConsumerKey(key)
		if err != nil {
			return
		}
		if again, err := readConsumerKey(k.bytes()); err != nil || again != k {
			t.Fatalf("%+v became %+v, %v", k, again, err)
		}
		v, err := readConsumerValue(k.kind, value)
		if err != nil || k.kind == kindPartitions {
			return
		}
		again, err := readConsumerValue(k.kind, encodeAny(v))
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Fatalf("%#v became %#v, %v", v, again, err)
		}
	})
}

// The bytes are those that Kafka 4.4's message classes write for the same values.
func TestConsumerRecordsAreKafkas(t *testing.T) {
	for i, want := range []string{
		"000000000007" + "010008" + "0000000000000063",
		"000000000007" + "00",
	} {
		if got := hex(consumerSamples()[i].Value); got != want {
			t.Errorf("record %d is %s, want %s", i, got, want)
		}
	}
	if got := hex(consumerSamples()[7].Key); got != "0008000167"+"00016d" {
		t.Errorf("%s", got)
	}
	want := "0000" + "00000004" + "00000003" + "01" +
		"02" + "01020300000000000000000000000000" + "03" + "00000000" + "00000005" + "01" + "00" + "09" + "03" + "00000002" + "00000004" +
		"02" + "01020300000000000000000000000000" + "02" + "00000001" + "01" + "00" + "05" + "02" + "00000003" + "00"
	if got := hex(consumerSamples()[7].Value); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

func hex(b []byte) string {
	const digits = "0123456789abcdef"
	var s []byte
	for _, c := range b {
		s = append(s, digits[c>>4], digits[c&15])
	}
	return string(s)
}
