package eos

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/brokertest/nemesis"
	"penstock/dataplane/recordbatch"
)

// small is a history of two inputs that one transaction passes on, over two
// partitions, beside one that is aborted. All is as it should be.
type small struct {
	h *History
	f Final
}

var (
	in0, in1 = nemesis.TP{Topic: "in", Partition: 0}, nemesis.TP{Topic: "in", Partition: 1}
	to0, to1 = nemesis.TP{Topic: "last", Partition: 0}, nemesis.TP{Topic: "last", Partition: 1}
)

func newSmall() *small {
	s := &small{h: NewHistory(io.Discard, "in", "last"), f: Final{
		Ends:    map[nemesis.TP]int64{in0: 1, in1: 1, to0: 5, to1: 5},
		Offsets: map[string]map[nemesis.TP]int64{"stage-0": {in0: 1, in1: 1}},
	}}
	s.h.Acked(Input{0, 1}, Place{0, 0, Input{0, 1}})
	s.h.Acked(Input{0, 2}, Place{1, 0, Input{0, 2}})
	for _, reader := range []string{"a", "b"} {
		s.reads(reader, in0, 1, 0, "0/1 -")
		s.reads(reader, in1, 1, 0, "0/2 -")
	}
	// Aborted: offset 0 of both; committed: offset 2 of both.
	s.tell(Event{Txn: "t0", Deed: Begins, Next: map[int32]int64{0: 1, 1: 1}})
	s.tell(Event{Txn: "t0", Deed: GivesUp, Sent: []Place{{0, 0, Input{0, 1}}, {1, 0, Input{0, 2}}}})
	s.tell(Event{Txn: "t0", Deed: Aborted})
	s.tell(Event{Txn: "t1", Deed: Begins, Next: map[int32]int64{0: 1, 1: 1}})
	s.h.Looked("stage-0", in0, 1, -1)
	s.h.Looked("stage-0", in0, 2, -1)
	s.tell(Event{Txn: "t1", Deed: Asks, Sent: []Place{{0, 2, Input{0, 1}}, {1, 2, Input{0, 2}}}})
	s.tell(Event{Txn: "t1", Deed: Committed})
	s.h.Looked("stage-0", in0, 1, 1)
	s.h.Looked("stage-0", in0, 2, -1) // it was deposed
	return s
}

// sees has all readers read what is there.
func (s *small) sees() {
	for _, reader := range []string{"a", "b"} {
		s.reads(reader, to0, 4, 2, "0/1 - t1")
		s.reads(reader, to1, 4, 2, "0/2 - t1")
	}
}

func (s *small) tell(e Event) {
	e.At = nemesis.Monotonic()
	s.h.Tell(e, "stage-0", "in", "last")
}

// reads is a read of committed data up to end; "last" is the last reader, and what
// others read it reads, too.
func (s *small) reads(reader string, at nemesis.TP, end, offset int64, value string) {
	for _, name := range []string{reader, "last"} {
		s.h.Saw(Read{Reader: name, Committed: true, Last: name == "last", At: at, Epoch: 1, HW: end, LSO: end, Records: []Record{{offset, value}}})
	}
}

func (s *small) kinds() (kinds []string) {
	for _, a := range s.h.Check(s.f) {
		kinds = append(kinds, a.Kind)
	}
	return kinds
}

// TestCheckFindsEachAnomaly has one small history for each kind, and one that is
// as it should be.
func TestCheckFindsEachAnomaly(t *testing.T) {
	for _, test := range []struct {
		name, kind string
		change     func(s *small) // instead of what readers should see
	}{
		{"all is well", "", (*small).sees},
		{"a record of an open transaction is read", "dirty read", func(s *small) {
			s.tell(Event{Txn: "t2", Deed: Begins})
			s.reads("a", to0, 5, 4, "0/1 - t2")
			s.tell(Event{Txn: "t2", Deed: Asks, Sent: []Place{{0, 4, Input{0, 1}}}})
			s.sees()
		}},
		{"a record is read whose client never asked for a commit", "dirty read", func(s *small) {
			s.sees()
			s.tell(Event{Txn: "t2", Deed: Begins})
			s.reads("a", to0, 5, 4, "0/1 - t2")
		}},
		{"a record was read and is gone", "dirty read", func(s *small) {
			s.sees()
			s.tell(Event{Txn: "t2", Deed: Asks, Sent: []Place{{0, 4, Input{0, 3}}}})
			s.h.Saw(Read{Reader: "a", Committed: true, At: to0, Epoch: 1, HW: 5, LSO: 5, Records: []Record{{4, "0/3 - t2"}}})
		}},
		{"a record of an aborted transaction is read", "aborted read", func(s *small) {
			s.sees()
			s.reads("a", to0, 4, 0, "0/1 - t0")
		}},
		{"a commit that became an abort is read", "aborted read", func(s *small) {
			s.sees()
			s.tell(Event{Txn: "t2", Deed: Asks, Sent: []Place{{0, 4, Input{0, 3}}}})
			s.tell(Event{Txn: "t2", Deed: Aborted})
			s.reads("a", to0, 5, 4, "0/3 - t2")
		}},
		{"half of a committed transaction is there", "torn transaction", func(s *small) { s.reads("a", to0, 4, 2, "0/1 - t1") }},
		{"half of a transaction without an outcome is there", "torn transaction", func(s *small) {
			s.sees()
			s.tell(Event{Txn: "t2", Deed: Asks, Sent: []Place{{0, 3, Input{0, 4}}, {1, 3, Input{0, 5}}}})
			s.reads("a", to0, 4, 3, "0/4 - t2")
		}},
		{"another's record is in a transaction's place", "torn transaction", func(s *small) {
			s.reads("a", to0, 4, 2, "0/1 - t1")
			s.reads("a", to1, 4, 2, "0/1 - t1")
		}},
		{"nothing of a committed transaction is there", "lost write", func(*small) {}},
		{"an acknowledged input is gone", "lost write", func(s *small) {
			s.sees()
			s.h.Acked(Input{0, 7}, Place{0, 1, Input{0, 7}})
		}},
		{"an input was not passed on", "lost write", func(s *small) {
			s.sees()
			s.reads("a", in0, 2, 1, "0/3 -")
		}},
		{"an input was passed on twice", "duplicate", func(s *small) {
			s.sees()
			s.tell(Event{Txn: "t2", Deed: Asks, Sent: []Place{{0, 4, Input{0, 1}}}})
			s.reads("a", to0, 5, 4, "0/1 - t2")
		}},
		{"an input was fed twice", "duplicate", func(s *small) {
			s.sees()
			s.reads("a", in0, 2, 1, "0/1 -")
		}},
		{"a key's inputs have changed places", "reordered", func(s *small) {
			s.sees()
			s.tell(Event{Txn: "t2", Deed: Asks, Sent: []Place{{0, 3, Input{0, 1 + 2*keys}}, {0, 4, Input{0, 1 + keys}}}})
			s.reads("a", to0, 5, 3, Input{0, 1 + 2*keys}.value("t2"))
			s.reads("a", to0, 5, 4, Input{0, 1 + keys}.value("t2"))
		}},
		{"two readers see different things", "changed", func(s *small) {
			s.sees()
			s.reads("c", to0, 4, 2, "0/2 - t1")
		}},
		{"nobody has sent it", "invented", func(s *small) {
			s.sees()
			s.reads("a", to0, 5, 4, "0/1 - t9")
		}},
		{"garbage", "invented", func(s *small) {
			s.sees()
			s.reads("a", to0, 5, 4, "what is this")
		}},
		{"a record of another topic", "invented", func(s *small) {
			s.sees()
			s.reads("a", in0, 2, 1, "0/1 - t1")
		}},
		{"a record at the bound of its reply", "beyond the end", func(s *small) {
			s.sees()
			s.reads("a", to0, 4, 4, "0/1 - t1")
		}},
		{"the stable offset goes back", "lso back", func(s *small) {
			s.sees()
			s.h.Saw(Read{Reader: "a", Committed: true, At: to0, Epoch: 1, HW: 4, LSO: 3})
		}},
		{"the log ends below a stable offset that was seen", "lso back", func(s *small) {
			s.sees()
			s.f.Ends[to0] = 3
		}},
		{"the stable offset is above the watermark", "lso above hw", func(s *small) {
			s.sees()
			s.h.Saw(Read{Reader: "c", At: to0, Epoch: 1, HW: 4, LSO: 5})
		}},
		{"a broker takes committed offsets back", "offsets back", func(s *small) {
			s.sees()
			s.h.Looked("stage-0", in0, 1, 0)
		}},
		{"committed offsets end below what was seen", "offsets back", func(s *small) {
			s.sees()
			s.f.Offsets["stage-0"][in0] = 0
		}},
		{"offsets of an aborted transaction show", "dirty offsets", func(s *small) {
			s.sees()
			s.tell(Event{Txn: "t2", Deed: Begins, Next: map[int32]int64{0: 5}})
			s.tell(Event{Txn: "t2", Deed: GivesUp})
			s.h.Looked("stage-0", in0, 1, 5)
			s.f.Offsets["stage-0"][in0] = 5
		}},
		{"offsets show of a transaction without an outcome of which nothing is there", "dirty offsets", func(s *small) {
			s.sees()
			s.tell(Event{Txn: "t2", Deed: Begins, Next: map[int32]int64{0: 5}})
			s.tell(Event{Txn: "t2", Deed: Asks, Sent: []Place{{0, 3, Input{0, 1}}}})
			s.h.Looked("stage-0", in0, 1, 5)
			s.f.Offsets["stage-0"][in0] = 5
		}},
		{"offsets show before their commit was asked for", "dirty offsets", func(s *small) {
			s.sees()
			s.tell(Event{Txn: "t2", Deed: Begins, Next: map[int32]int64{0: 5}})
			s.h.Looked("stage-0", in0, 1, 5)
			s.f.Offsets["stage-0"][in0] = 5
			s.tell(Event{Txn: "t2", Deed: Asks})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSmall()
			test.change(s)
			kinds := s.kinds()
			if test.kind == "" && len(kinds) > 0 || test.kind != "" && !slices.Contains(kinds, test.kind) {
				t.Errorf("found %v, want %q", kinds, test.kind)
			}
		})
	}
}

// TestCheckAllowsWhatIsAllowed has what looks bad and is not.
func TestCheckAllowsWhatIsAllowed(t *testing.T) {
	s := newSmall()
	s.sees()
	s.tell(Event{Txn: "gone", Deed: Begins, Next: map[int32]int64{0: 9}}) // its client was killed
	s.tell(Event{Txn: "none of it", Deed: Asks, Sent: []Place{{0, 3, Input{0, 8}}}})
	s.tell(Event{Txn: "none of it", Deed: Unsure})
	// Nobody heard the outcome of this one, which its records tell; so its offsets may show.
	s.h.Acked(Input{0, 3}, Place{0, 1, Input{0, 3}})
	s.reads("a", in0, 2, 1, "0/3 -")
	s.tell(Event{Txn: "all.of.it", Deed: Begins, Next: map[int32]int64{0: 2}})
	s.tell(Event{Txn: "all.of.it", Deed: Asks, Sent: []Place{{0, 4, Input{0, 3}}}})
	s.h.Looked("stage-0", in0, 1, 2)
	s.reads("a", to0, 5, 4, "0/3 - all.of.it")
	s.h.Saw(Read{Reader: "everything", At: to0, Epoch: 1, HW: 4, LSO: 4, Records: []Record{{0, "0/1 - t0"}}}) // who asks for it gets aborted data
	s.f.Offsets["stage-0"][in0] = 2
	s.f.Ends[in0] = 2
	s.h.Saw(Read{Reader: "a", Committed: true, At: to0, Epoch: 2, HW: 3, LSO: 3}) // a new leader's are behind for a moment
	if got := s.kinds(); len(got) > 0 {
		t.Errorf("found %v", s.h.Anomalies())
	}
	if c := s.h.Counts(); c.Died != 2 || c.Committed != 1 || c.Aborted != 1 || c.Unsure != 1 {
		t.Errorf("counts are %+v", c)
	}
}

func TestValuesTellTheirWay(t *testing.T) {
	v := passOn(passOn(Input{3, 17}.value(NoTxn), "m0.0.4"), "m1.2.9")
	if in, by, ok := parse(v); v != "3/17 - m0.0.4 m1.2.9" || !ok || in != (Input{3, 17}) || by != "m1.2.9" {
		t.Errorf("%q is %v by %q, %v", v, in, by, ok)
	}
	for _, bad := range []string{"", "x", "1/2", "1 -", "a/2 -", "1/b -"} {
		if _, _, ok := parse(bad); ok {
			t.Errorf("%q is taken for a value", bad)
		}
	}
}

// TestReaderOfCommittedDataLeavesOutWhatIsAborted decodes a reply with two
// transactions of one producer, the first of them aborted, and one of another.
func TestReaderOfCommittedDataLeavesOutWhatIsAborted(t *testing.T) {
	var data []byte
	offset := int64(10)
	add := func(pid int64, control bool, r recordbatch.Record) {
		o := recordbatch.NoProducer()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional, o.Control, o.BaseOffset = pid, 0, 0, true, control, offset
		b, err := recordbatch.Build(o, []recordbatch.Record{r})
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, b...)
		offset++
	}
	put := func(pid int64, value string) { add(pid, false, recordbatch.Record{Value: []byte(value)}) }
	end := func(pid int64, kind byte) {
		add(pid, true, recordbatch.Record{Key: []byte{0, 0, 0, kind}, Value: make([]byte, 6)})
	}
	put(1, "aborted") // 10, its transaction began below what was asked for
	put(2, "kept")    // 11
	end(1, 0)         // 12
	put(1, "kept, too")
	end(2, 1)
	end(1, 1)
	p := &kmsg.FetchResponseTopicPartition{RecordBatches: data, AbortedTransactions: []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 1, FirstOffset: 7}}}
	got, next, err := decode(p, 10, true)
	if want := []Record{{11, "kept"}, {13, "kept, too"}}; err != nil || next != 16 || !slices.Equal(got, want) {
		t.Errorf("got %v up to %d, %v", got, next, err)
	}
	if got, _, _ := decode(p, 10, false); len(got) != 3 {
		t.Errorf("who reads everything got %v", got)
	}
	data[len(data)-1] ^= 1
	if _, _, err := decode(p, 10, true); err == nil {
		t.Error("a wrong checksum is not noticed")
	}
}

// TestReportOfAKilledMemberIsReadUpToWhatItWrote has a last line that is cut.
func TestReportOfAKilledMemberIsReadUpToWhatItWrote(t *testing.T) {
	var got []Event
	readReport(strings.NewReader(`{"at":5,"txn":"a","deed":"begins","next":{"2":7}}
{"at":6,"txn":"a","deed":"asks for a commit","sent":[{"p":1,"o":2,"in":{"Feeder":3,"Seq":4}}]}
{"at":7,"txn":"a","de`), func(e Event) { got = append(got, e) })
	if len(got) != 2 || got[0].Next[2] != 7 || got[1].Sent[0] != (Place{1, 2, Input{3, 4}}) || got[1].At != 6*time.Nanosecond {
		t.Errorf("read %+v", got)
	}
}
