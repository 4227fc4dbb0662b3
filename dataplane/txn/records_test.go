package txn

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

var sampleMeta = meta{
	producerID: 7, previousID: 6, nextID: 8, start: 100, updated: 200, timeout: 60_000, epoch: 3, lastEpoch: noEpoch, nextEpoch: noEpoch, client: 2,
	state: stateOngoing, parts: setOf([]protocol.TopicPartition{{Topic: "b", Partition: 1}, {Topic: "a", Partition: 2}, {Topic: "a", Partition: 0}}),
}

// The bytes are Kafka's: of TransactionLogKey 0 and TransactionLogValue 0 and 1.
func TestRecordsByteForByte(t *testing.T) {
	for version, want := range map[int16]string{
		0: "\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x07" + "\x00\x03" + "\x00\x00\xea\x60" + "\x01" +
			"\x00\x00\x00\x02" + "\x00\x01a" + "\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x02" + "\x00\x01b" + "\x00\x00\x00\x01\x00\x00\x00\x01" +
			"\x00\x00\x00\x00\x00\x00\x00\xc8" + "\x00\x00\x00\x00\x00\x00\x00\x64",
		2: "\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x07" + "\x00\x03" + "\x00\x00\xea\x60" + "\x01" +
			"\x03" + "\x02a" + "\x03\x00\x00\x00\x00\x00\x00\x00\x02\x00" + "\x02b" + "\x02\x00\x00\x00\x01\x00" +
			"\x00\x00\x00\x00\x00\x00\x00\xc8" + "\x00\x00\x00\x00\x00\x00\x00\x64" +
			"\x03" + "\x00\x08\x00\x00\x00\x00\x00\x00\x00\x06" + "\x01\x08\x00\x00\x00\x00\x00\x00\x00\x08" + "\x02\x02\x00\x02",
	} {
		r := record("id", &sampleMeta, version)
		if string(r.Value) != want {
			t.Errorf("version %d: value\n%q, want\n%q", version, r.Value, want)
		}
		if string(r.Key) != "\x00\x00\x00\x02id" {
			t.Errorf("key %q", r.Key)
		}
	}
	empty := sampleMeta
	empty.state, empty.parts = stateEmpty, nil
	if v := record("id", &empty, 0).Value; !bytes.Contains(v, []byte("\x00\xff\xff\xff\xff")) {
		t.Errorf("an empty id has partitions: %q", v)
	}
	empty.state = stateCompleteCommit
	if v := record("id", &empty, 0).Value; !bytes.Contains(v, []byte("\x04\x00\x00\x00\x00")) {
		t.Errorf("a transaction that is over has no empty list of partitions: %q", v)
	}
}

func TestRecordsRoundTrip(t *testing.T) {
	for _, version := range []int16{0, 1, 2} {
		id, m, err := decode(record("id", &sampleMeta, version))
		want := sampleMeta
		if version == 0 {
			want.previousID, want.nextID, want.client = noProducerID, noProducerID, 0
		}
		if err != nil || id != "id" || !reflect.DeepEqual(*m, want) {
			t.Errorf("version %d: %q %+v, %v", version, id, m, err)
		}
	}
	if id, m, err := decode(coordinator.Record{Key: recordKey("id")}); id != "id" || m != nil || err != nil {
		t.Errorf("a tombstone reads %q, %+v, %v", id, m, err)
	}
}

func TestRecordsThatCannotBeRead(t *testing.T) {
	good := record("id", &sampleMeta, 2)
	for name, r := range map[string]coordinator.Record{
		"no key":        {Value: good.Value},
		"short key":     {Key: good.Key[:4], Value: good.Value},
		"empty value":   {Key: good.Key, Value: []byte{}},
		"newer value":   {Key: good.Key, Value: append([]byte{0, 2}, good.Value[2:]...)},
		"cut value":     {Key: good.Key, Value: good.Value[:20]},
		"state of none": {Key: good.Key, Value: append(append([]byte{}, good.Value[:16]...), append([]byte{9}, good.Value[17:]...)...)},
		"state Dead":    {Key: good.Key, Value: append(append([]byte{}, good.Value[:16]...), append([]byte{6}, good.Value[17:]...)...)},
	} {
		if _, m, err := decode(r); err == nil || err == errForeign {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	if _, _, err := decode(coordinator.Record{Key: []byte{0, 1, 0, 0}, Value: good.Value}); err != errForeign {
		t.Errorf("another kind of key: %v", err)
	}
	if !strings.Contains(stateNames[stateDead], "Dead") || kmsg.TransactionState(stateCompleteAbort).String() != "CompleteAbort" {
		t.Error("the states are not Kafka's")
	}
}

func FuzzDecode(f *testing.F) {
	for _, version := range []int16{0, 2} {
		r := record("id", &sampleMeta, version)
		f.Add(r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		id, m, err := decode(coordinator.Record{Key: key, Value: value})
		if err != nil || m == nil {
			return
		}
		_ = m.state.String()
		again, m2, err := decode(record(id, m, 2))
		if err != nil || again != id || !reflect.DeepEqual(m, m2) && len(m.parts)+len(m2.parts) > 0 {
			t.Fatalf("%q %+v became %q %+v, %v", id, m, again, m2, err)
		}
	})
}
