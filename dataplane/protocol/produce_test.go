package protocol

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func produceBody(version int16, txn *string, topics map[string]int, records []byte) []byte {
	r := kmsg.NewPtrProduceRequest()
	r.SetVersion(version)
	r.TransactionID, r.Acks, r.TimeoutMillis = txn, -1, 1234
	for name, n := range topics {
		t := kmsg.NewProduceRequestTopic()
		t.Topic = name
		for i := range n {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition = int32(i)
			if i%2 == 0 {
				p.Records = records
			}
			t.Partitions = append(t.Partitions, p)
		}
		r.Topics = append(r.Topics, t)
	}
	return r.AppendTo(nil)
}

// checkProduce holds a body's decoding against kmsg's, in whatever memory the pool
// gives.
func checkProduce(t *testing.T, version int16, body []byte) {
	t.Helper()
	api := Lookup(keyProduce)
	if _, err := api.Measure(version, body); err != nil {
		return // Decode is for what Measure has accepted
	}
	want := kmsg.NewPtrProduceRequest()
	want.SetVersion(version)
	werr := want.ReadFrom(body)
	r, err := api.Decode(version, body)
	if (err == nil) != (werr == nil) {
		t.Fatalf("version %d: %v, kmsg says %v", version, err, werr)
	}
	if err != nil {
		return
	}
	got := r.(*kmsg.ProduceRequest)
	if got.Version != want.Version || got.Acks != want.Acks || got.TimeoutMillis != want.TimeoutMillis || len(got.Topics) != len(want.Topics) ||
		(got.TransactionID == nil) != (want.TransactionID == nil) || got.TransactionID != nil && *got.TransactionID != *want.TransactionID {
		t.Fatalf("version %d: %+v, kmsg says %+v", version, got, want)
	}
	for i := range want.Topics {
		g, w := &got.Topics[i], &want.Topics[i]
		if g.Topic != w.Topic || len(g.Partitions) != len(w.Partitions) {
			t.Fatalf("version %d: topic %+v, kmsg says %+v", version, g, w)
		}
		for j := range w.Partitions {
			g, w := &g.Partitions[j], &w.Partitions[j]
			if g.Partition != w.Partition || (g.Records == nil) != (w.Records == nil) || !bytes.Equal(g.Records, w.Records) {
				t.Fatalf("version %d: partition %+v, kmsg says %+v", version, g, w)
			}
		}
	}
	Recycle(r)
}

func produceBodies() (all [][]byte) {
	id := "tx"
	for _, v := range []int16{3, 8, 9, 11} {
		for _, txn := range []*string{nil, &id} {
			all = append(all, produceBody(v, txn, nil, nil), produceBody(v, txn, map[string]int{"a": 1}, []byte("records")),
				produceBody(v, txn, map[string]int{"topic": 3, "": 0, "other": 300}, []byte{}))
		}
	}
	return all
}

// What a recycled request held before must not shine through.
func TestProduceRequestsAreDecodedAsKmsgDoesInUsedMemoryToo(t *testing.T) {
	for range 3 {
		for _, b := range produceBodies() {
			for v := int16(3); v <= 11; v++ {
				checkProduce(t, v, b)
			}
		}
	}
}

func FuzzDecodeProduce(f *testing.F) {
	for _, b := range produceBodies() {
		f.Add(int16(3), b)
		f.Add(int16(11), b)
	}
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < 3 || version > 11 {
			return
		}
		checkProduce(t, version, body)
	})
}

func TestDecodingAProduceRequestAllocatesNothing(t *testing.T) {
	if raceBuild {
		t.Skip("the race detector makes pools forget")
	}
	body := produceBody(9, nil, map[string]int{"topic": 4}, make([]byte, 100))
	if n := testing.AllocsPerRun(200, func() {
		r, err := Lookup(keyProduce).Decode(9, body)
		if err != nil {
			t.Fatal(err)
		}
		Recycle(r)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
