package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/partition"
	"penstock/dataplane/peer"
	"penstock/dataplane/protocol"
	"penstock/dataplane/recordbatch"
)

// behind is a cluster in which node 2 is about to copy three partitions of three batches
// each from node 1, all in its first fetch, whose answer comes by wire.
func behind(t *testing.T, wire func(ctx context.Context, req *kmsg.FetchRequest, answer []byte) (io.Reader, int)) *cluster {
	c := newCluster(t, 1, partition.TopicConfig{MinISR: 1})
	c.isr = []int32{1}
	c.elect(1)
	order := func(n *node) *kmsg.LeaderAndISRRequest {
		req := c.orderLocked(n)
		states := &req.TopicStates[0].PartitionStates
		for i := int32(1); i < 3; i++ {
			s := (*states)[0]
			s.Partition = i
			*states = append(*states, s)
		}
		return req
	}
	c.node(1).m.LeaderAndISR(order(c.node(1)))
	for i := range int32(3) {
		for j := range 3 {
			b, err := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Value: fmt.Appendf(nil, "partition %d, record %d", i, j)}})
			if err != nil {
				t.Fatal(err)
			}
			c.node(1).m.Append(partition.AppendRequest{Acks: 1, Entries: []partition.AppendEntry{{TP: at(i), Records: b}}}, func(rs []partition.AppendResult) {
				if rs[0].Err != nil {
					t.Error(rs[0].Err)
				}
			})
		}
	}
	// It gets through when it has heard of all three.
	c.cutOff(2, 1)
	c.node(2).m.LeaderAndISR(order(c.node(2)))
	synctest.Wait()
	c.wire = wire
	c.mu.Lock()
	clear(c.cut)
	c.mu.Unlock()
	return c
}

func at(i int32) protocol.TopicPartition {
	return protocol.TopicPartition{Topic: tp0.Topic, Partition: i}
}

// ends are where the three partitions of node 2 end; -1 is one that it does not have.
func (c *cluster) ends() (ends [3]int64) {
	for i := range ends {
		ends[i] = -1
		if p := c.node(2).m.Partition(at(int32(i))); p != nil {
			ends[i] = p.EndOffset()
		}
	}
	return ends
}

func (c *cluster) wantEnds(when string, want ...int64) {
	c.t.Helper()
	if got := c.ends(); !slices.Equal(got[:], want) {
		c.t.Errorf("%s: node 2 ends at %d, want %d", when, got, want)
	}
}

// asked are the offsets that a full request names, -1 where it does not.
func asked(req *kmsg.FetchRequest) [3]int64 {
	offsets := [3]int64{-1, -1, -1}
	for _, rt := range req.Topics {
		for _, p := range rt.Partitions {
			offsets[p.Partition] = p.FetchOffset
		}
	}
	return offsets
}

// inside is a place in the records of a partition of the answer.
func inside(t *testing.T, answer []byte, partition int) int {
	i := bytes.Index(answer, fmt.Appendf(nil, "partition %d, record 1", partition))
	if i < 0 {
		t.Errorf("answer has nothing of partition %d", partition)
	}
	return max(i, 0)
}

// What came before an answer broke off is kept, and is all that the next request takes for copied.
func TestAnswerThatBreaksOffKeepsWhatCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offsets [][3]int64
		c := behind(t, func(_ context.Context, req *kmsg.FetchRequest, answer []byte) (io.Reader, int) {
			offsets = append(offsets, asked(req))
			if len(offsets) > 1 {
				return bytes.NewReader(answer), len(answer)
			}
			return io.MultiReader(bytes.NewReader(answer[:inside(t, answer, 1)]), iotest.ErrReader(errors.New("reset by peer"))), len(answer)
		})
		defer c.close()
		time.Sleep(5 * time.Second)
		c.wantEnds("after all", 3, 3, 3)
		if want := [][3]int64{{0, 0, 0}, {3, 0, 0}}; len(offsets) < 2 || !slices.Equal(offsets[:2], want) {
			t.Errorf("asked for %d, want first %d", offsets, want)
		}
	})
}

// A length that the answer cannot have breaks the connection as a lost one does.
func TestAnswerThatIsLongerThanItSays(t *testing.T) {
	for _, wrong := range []int{-40, 40} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			c := behind(t, func(_ context.Context, _ *kmsg.FetchRequest, answer []byte) (io.Reader, int) {
				if n++; n > 1 {
					return bytes.NewReader(answer), len(answer)
				}
				return bytes.NewReader(append(answer, make([]byte, 40)...)), len(answer) + wrong
			})
			defer c.close()
			time.Sleep(5 * time.Second)
			c.wantEnds("after all", 3, 3, 3)
			if d := c.dialled.Load(); d != 2 {
				t.Errorf("%d bytes off: %d connections, want 2", wrong, d)
			}
		})
	}
}

func TestBadChecksumInTheMiddleOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offsets [][3]int64
		c := behind(t, func(_ context.Context, req *kmsg.FetchRequest, answer []byte) (io.Reader, int) {
			if offsets = append(offsets, asked(req)); len(offsets) == 1 {
				answer[inside(t, answer, 1)] ^= 1
			}
			return iotest.OneByteReader(bytes.NewReader(answer)), len(answer)
		})
		defer c.close()
		time.Sleep(5 * time.Second)
		c.wantEnds("after all", 3, 3, 3)
		// Nothing of the bad one, though its first batch was good; it pauses, the others go on.
		if want := [][3]int64{{0, 0, 0}, {3, -1, 3}}; len(offsets) < 2 || !slices.Equal(offsets[:2], want) {
			t.Errorf("asked for %d, want first %d", offsets, want)
		}
		if d := c.dialled.Load(); d != 1 {
			t.Errorf("%d connections", d)
		}
	})
}

// halfway gives the first part of an answer, and the rest when it is told to, unless ctx
// ends first.
type halfway struct {
	ctx   context.Context
	first io.Reader
	goOn  <-chan struct{}
	rest  io.Reader
}

func (h *halfway) Read(p []byte) (int, error) {
	if n, err := h.first.Read(p); err == nil {
		return n, nil
	}
	select {
	case <-h.goOn:
		return h.rest.Read(p)
	case <-h.ctx.Done():
		return 0, h.ctx.Err()
	}
}

// halfwayIn stops the first answer in the middle of partition 1's records.
func halfwayIn(t *testing.T, goOn <-chan struct{}, fetches *int) func(context.Context, *kmsg.FetchRequest, []byte) (io.Reader, int) {
	return func(ctx context.Context, _ *kmsg.FetchRequest, answer []byte) (io.Reader, int) {
		if *fetches++; *fetches > 1 {
			return bytes.NewReader(answer), len(answer)
		}
		i := inside(t, answer, 1)
		return &halfway{ctx, bytes.NewReader(answer[:i]), goOn, bytes.NewReader(answer[i:])}, len(answer)
	}
}

// While the rest of an answer is under way nothing is asked for: neither what is here already
// nor, by cutting the answer short, for a partition that comes new.
func TestRestOfAnAnswerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, fetches := make(chan struct{}), 0
		c := behind(t, halfwayIn(t, goOn, &fetches))
		defer c.close()
		time.Sleep(100 * time.Millisecond)
		c.wantEnds("halfway", 3, 0, 0)
		req := c.orderLocked(c.node(2))
		req.TopicStates[0].PartitionStates[0].Partition = 3
		c.node(1).m.LeaderAndISR(req)
		c.node(2).m.LeaderAndISR(req)
		time.Sleep(10 * time.Second)
		if fetches != 1 {
			t.Errorf("%d fetches", fetches)
		}
		close(goOn)
		time.Sleep(time.Second)
		c.wantEnds("after all", 3, 3, 3)
		if d := c.dialled.Load(); d != 1 || fetches < 2 {
			t.Errorf("%d connections, %d fetches", d, fetches)
		}
	})
}

// A partition that leads when its records have come, or is gone, does not take them.
func TestReplicaChangesWhileTheAnswerComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, fetches := make(chan struct{}), 0
		c := behind(t, halfwayIn(t, goOn, &fetches))
		defer c.close()
		time.Sleep(100 * time.Millisecond)
		c.wantEnds("halfway", 3, 0, 0)
		n := c.node(2)
		lead := c.orderLocked(n)
		s := &lead.TopicStates[0].PartitionStates[0]
		s.Partition, s.Leader, s.LeaderEpoch, s.ISR, s.ZKVersion = 1, 2, s.LeaderEpoch+1, []int32{2}, s.ZKVersion+1
		n.m.LeaderAndISR(lead)
		stop := kmsg.NewPtrStopReplicaRequest()
		stop.SetVersion(3)
		stop.BrokerEpoch, stop.ControllerEpoch = n.epoch, 1
		ts := kmsg.NewStopReplicaRequestTopic()
		ts.Topic = tp0.Topic
		ps := kmsg.NewStopReplicaRequestTopicPartitionState()
		ps.Partition, ps.LeaderEpoch, ps.Delete = 2, -2, true
		ts.PartitionStates = append(ts.PartitionStates, ps)
		stop.Topics = append(stop.Topics, ts)
		if resp := n.m.StopReplica(stop); resp.ErrorCode != 0 || len(resp.Partitions) != 1 || resp.Partitions[0].ErrorCode != 0 {
			t.Fatalf("%+v", resp)
		}
		close(goOn)
		time.Sleep(5 * time.Second)
		c.wantEnds("after all", 3, 0, -1)
		if !n.m.Partition(at(1)).IsLeader() {
			t.Error("node 2 does not lead partition 1")
		}
	})
}

func TestStopWhileAnAnswerComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetches := 0
		c := behind(t, halfwayIn(t, nil, &fetches))
		defer c.close()
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		c.node(2).fetchers.Close()
		if d := time.Since(began); d > 0 {
			t.Errorf("took %v", d)
		}
		c.wantEnds("after the stop", 3, 0, 0)
	})
}

// A follower that is out of range asks for the leader's offsets when the answer is in, and
// the partitions behind it in the same answer are taken first.
func TestOutOfRangeInTheMiddleOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetches := 0
		c := behind(t, func(_ context.Context, req *kmsg.FetchRequest, answer []byte) (io.Reader, int) {
			if fetches++; fetches == 1 {
				resp := kmsg.NewPtrFetchResponse()
				resp.Version = req.Version
				if err := resp.ReadFrom(answer); err != nil {
					t.Error(err)
				}
				p := &resp.Topics[1].Partitions[0]
				p.ErrorCode, p.RecordBatches = kerr.OffsetOutOfRange.Code, nil
				answer = resp.AppendTo(nil)
			}
			return bytes.NewReader(answer), len(answer)
		})
		defer c.close()
		time.Sleep(5 * time.Second)
		c.wantEnds("after all", 3, 3, 3)
		if d := c.dialled.Load(); d != 1 {
			t.Errorf("%d connections", d)
		}
	})
}

// answer is a response with all that brokers put into one, and records of that many bytes.
func answer(version int16, records int) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version, resp.ThrottleMillis, resp.SessionID = version, 9, 77
	for i := range 2 {
		topic := kmsg.NewFetchResponseTopic()
		if version >= fetchByID {
			topic.TopicID = protocol.UUID{byte(i), 7}
		} else {
			topic.Topic = fmt.Sprint("topic", i)
		}
		for j := range int32(4) {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset = j, int16(j), 1<<40, 1<<39, 5
			p.PreferredReadReplica = -1
			switch j {
			case 1:
				p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 1, FirstOffset: 2}, {ProducerID: 3, FirstOffset: 4}}
				p.RecordBatches = bytes.Repeat([]byte("r"), records)
			case 2:
				p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 4, 1<<33
				p.CurrentLeader.LeaderID, p.SnapshotID.Epoch = 3, 8
				p.UnknownTags.Set(300, []byte("later"))
			case 3:
				p.RecordBatches = []byte("some")
				p.DivergingEpoch.Epoch = 1
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		topic.UnknownTags.Set(5, nil)
		resp.Topics = append(resp.Topics, topic)
	}
	resp.UnknownTags.Set(0x80, []byte("x"))
	return resp
}

// told is what readResponse tells of a response.
type told struct {
	Code    int16
	Session int32
	Parts   []string
}

func tell(id protocol.UUID, name string, p *kmsg.FetchResponseTopicPartition) string {
	return fmt.Sprint(id, name, p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica, p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset, string(p.RecordBatches))
}

func toldBy(resp *kmsg.FetchResponse) told {
	all := told{Code: resp.ErrorCode, Session: resp.SessionID}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			all.Parts = append(all.Parts, tell(resp.Topics[i].TopicID, resp.Topics[i].Topic, &resp.Topics[i].Partitions[j]))
		}
	}
	return all
}

func readAll(src io.Reader, size int, version int16) (all told, err error) {
	err = stream(src, size, func(b *peer.Body) error {
		return readResponse(b, version, func(code int16, session int32) { all.Code, all.Session = code, session }, func(id protocol.UUID, name string, p *kmsg.FetchResponseTopicPartition) {
			all.Parts = append(all.Parts, tell(id, name, p))
		})
	})
	return all, err
}

func TestResponseIsReadAsItComes(t *testing.T) {
	for version := int16(fetchByName); version <= fetchWithEpoch; version++ {
		resp := answer(version, 20_000)
		wire := resp.AppendTo(nil)
		want := toldBy(resp)
		for name, src := range map[string]io.Reader{"at once": bytes.NewReader(wire), "by bytes": iotest.OneByteReader(bytes.NewReader(wire)), "by halves": iotest.HalfReader(bytes.NewReader(wire))} {
			if got, err := readAll(src, len(wire), version); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("version %d %s: %v\n%.300v\nwant\n%.300v", version, name, err, got, want)
			}
		}
		// Cut anywhere, it tells what is whole and then fails, whether the bytes end or the length does.
		wire = answer(version, 30).AppendTo(nil)
		want = toldBy(answer(version, 30))
		last := 0
		for cut := range wire {
			got, err := readAll(bytes.NewReader(wire[:cut]), len(wire), version)
			short, err2 := readAll(bytes.NewReader(wire), cut, version)
			if err == nil || err2 == nil || len(got.Parts) < last || !slices.Equal(got.Parts, short.Parts) || !slices.Equal(got.Parts, want.Parts[:len(got.Parts)]) {
				t.Fatalf("version %d cut at %d: %v, %v, %d and %d partitions", version, cut, err, err2, len(got.Parts), len(short.Parts))
			}
			last = len(got.Parts)
		}
		if last != len(want.Parts) {
			t.Errorf("version %d: %d partitions before its last byte", version, last)
		}
	}
}

// As much memory as one partition takes, whatever the length of the answer, and nothing
// for lengths that it cannot have.
func TestResponseTakesTheMemoryOfOnePartition(t *testing.T) {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = fetchWithEpoch
	topic := kmsg.NewFetchResponseTopic()
	for range 8 {
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches = make([]byte, 1<<20)
		topic.Partitions = append(topic.Partitions, p)
	}
	resp.Topics = append(resp.Topics, topic)
	large := resp.AppendTo(nil)
	allocated := func(src io.Reader, size int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = stream(src, size, func(b *peer.Body) error {
			return readResponse(b, fetchWithEpoch, func(int16, int32) {}, func(protocol.UUID, string, *kmsg.FetchResponseTopicPartition) {})
		})
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if n := allocated(bytes.NewReader(large), len(large)); n > 3<<20 {
		t.Errorf("8 partitions of 1 MiB: %d bytes", n)
	}
	// A gigabyte of records in an answer of some bytes.
	const toRecords = 4 + 2 + 4 + 1 + 16 + 1 + 4 + 2 + 3*8 + 1 + 4
	head := append(slices.Clone(large[:toRecords]), 0xff, 0xff, 0xff, 0xff, 0x03)
	if n := allocated(bytes.NewReader(head), len(head)); n > 1<<20 {
		t.Errorf("records that are not there: %d bytes", n)
	}
}

func TestResponseReadWithoutAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	wire := answer(fetchWithEpoch, 20_000).AppendTo(nil)
	src := bytes.NewReader(wire)
	bytesOf := 0
	if n := testing.AllocsPerRun(100, func() {
		src.Reset(wire)
		b := peer.NewBody(src, len(wire), buffers)
		err := readResponse(b, fetchWithEpoch, func(int16, int32) {}, func(_ protocol.UUID, _ string, p *kmsg.FetchResponseTopicPartition) { bytesOf += len(p.RecordBatches) })
		b.Close()
		if err != nil {
			t.Error(err)
		}
	}); n > 1 { // the body, of which a connection has one
		t.Errorf("%v allocations", n)
	}
	if bytesOf == 0 {
		t.Error("no records")
	}
}

// Whatever comes, there is no panic, and what both decoders take for a response says the same.
func FuzzResponse(f *testing.F) {
	for version := int16(fetchByName); version <= fetchWithEpoch; version++ {
		f.Add(version, answer(version, 9).AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version int16, wire []byte) {
		version = fetchByName + (version&0x7fff)%(fetchWithEpoch-fetchByName+1)
		got, err := readAll(bytes.NewReader(wire), len(wire), version)
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = version
		if resp.ReadFrom(wire) != nil || err != nil {
			return
		}
		if want := toldBy(resp); !reflect.DeepEqual(got, want) {
			t.Errorf("%v\nwant\n%v", got, want)
		}
	})
}
