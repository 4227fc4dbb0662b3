package groups

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// answerFrame is an answer as it is on the wire, requestFrame a request.
func answerFrame(id int32, resp kmsg.Response) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(id))
	if resp.IsFlexible() {
		b = append(b, 0)
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func requestFrame(id int32, req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, req, id)
}

// told is what a reader has written down.
func told(t *testing.T, b *bytes.Buffer) []Event {
	t.Helper()
	var all []Event
	for dec := json.NewDecoder(b); ; {
		var e Event
		if err := dec.Decode(&e); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

// TestExchangeReadsWhatPasses gives it requests and answers of all kinds in their order on the wire,
// cut anywhere, with some between that nobody wants.
func TestExchangeReadsWhatPasses(t *testing.T) {
	instance := "i"
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.InstanceID = 9, "g", &instance
	joined := kmsg.NewPtrJoinGroupResponse()
	joined.Version, joined.Generation = 9, 4
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Generation = 4, 4
	rebalancing := kmsg.NewPtrHeartbeatResponse()
	rebalancing.Version, rebalancing.ErrorCode = 4, kerr.RebalanceInProgress.Code
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 12
	metadataAnswer := kmsg.NewPtrMetadataResponse()
	metadataAnswer.Version = 12
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version = 9
	committed := kmsg.NewPtrOffsetCommitResponse()
	committed.Version = 9
	for p := range int32(2) {
		ct := kmsg.NewOffsetCommitRequestTopic()
		ct.Topic = topic
		cp := kmsg.NewOffsetCommitRequestTopicPartition()
		cp.Partition, cp.Offset = p, int64(10+p)
		ct.Partitions = append(ct.Partitions, cp)
		commit.Topics = append(commit.Topics, ct)
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic = topic
		rp := kmsg.NewOffsetCommitResponseTopicPartition()
		rp.Partition, rp.ErrorCode = p, []int16{0, kerr.UnknownMemberID.Code}[p]
		rt.Partitions = append(rt.Partitions, rp)
		committed.Topics = append(committed.Topics, rt)
	}
	next := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	next.Version = 1
	nextAnswer := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	nextAnswer.Version, nextAnswer.MemberEpoch = 1, 8
	nextAnswer.Assignment = &kmsg.ConsumerGroupHeartbeatResponseAssignment{Topics: []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{{Partitions: []int32{3, 4}}}}

	var out, in []byte
	for i, pair := range []struct {
		kmsg.Request
		kmsg.Response
	}{{join, joined}, {metadata, metadataAnswer}, {beat, rebalancing}, {commit, committed}, {next, nextAnswer}} {
		out = append(out, requestFrame(int32(i), pair.Request)...)
		in = append(in, answerFrame(int32(i), pair.Response)...)
	}
	for _, piece := range []int{1, 3, 7, 1000} {
		var b bytes.Buffer
		x := newExchange(&reader{log: &Log{out: &b}, group: "g", member: "m"}, "b:1")
		for part := range slices.Chunk(out, piece) {
			x.wrote(part)
		}
		for part := range slices.Chunk(in, piece) {
			x.readSome(part)
		}
		var kinds []Kind
		for _, e := range told(t, &b) {
			kinds = append(kinds, e.Kind)
			switch {
			case e.Kind == Joining && e.Instance != "i",
				e.Kind == Alive && e.Key == 11 && e.Generation != 4,
				e.Kind == Alive && e.Key == 12 && (e.Generation != 4 || !e.Rebalancing),
				e.Kind == Alive && e.Key == 68 && (e.Generation != 8 || !slices.Equal(e.Partitions, []int32{3, 4})),
				e.Kind == Committed && e.Code == 0 && e.Offsets[0] != 10,
				e.Kind == Committed && e.Code != 0 && e.Offsets[1] != 11,
				e.Member != "m", e.Group != "g", e.Broker != "b:1":
				t.Errorf("in pieces of %d: %+v", piece, e)
			}
		}
		slices.Sort(kinds)
		want := []Kind{Alive, Alive, Alive, Commits, Committed, Committed, Fenced, Joining}
		slices.Sort(want)
		if !slices.Equal(kinds, want) {
			t.Errorf("in pieces of %d: %v", piece, kinds)
		}
	}
}

// TestCommitWithoutAnAnswerIsDoubtful closes a connection with a commit under way.
func TestCommitWithoutAnAnswerIsDoubtful(t *testing.T) {
	r := &reader{log: &Log{out: io.Discard}}
	x := newExchange(r, "b:1")
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version = 8
	x.wrote(requestFrame(1, req))
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = 8
	x.readSome(answerFrame(1, resp))
	x.ended()
	if n := r.doubtful.Load(); n != 0 {
		t.Errorf("%d doubtful, it was answered", n)
	}
	x.wrote(requestFrame(2, req))
	x.ended()
	if n := r.doubtful.Load(); n != 1 {
		t.Errorf("%d doubtful", n)
	}
}

// served is a connection through a tap, and its other end.
func served(t *testing.T) (*tap, net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tp := newTap(&reader{log: &Log{out: io.Discard}})
	near, err := tp.dial(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return tp, near, far
}

func TestTapHoldsAndDeliversLate(t *testing.T) {
	tp, near, far := served(t)
	tp.hold()
	if _, err := near.Write([]byte("ask")); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Write([]byte("say")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 3)
	if err := near.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read while held: %v", err)
	}
	near.Close() // what it has written goes on its way all the same
	if err := far.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := far.Read(buf); err == nil {
		t.Errorf("%q came through while held", buf[:n])
	}
	if err := far.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	tp.let()
	if _, err := io.ReadFull(far, buf); err != nil || string(buf) != "ask" {
		t.Errorf("%q, %v", buf, err)
	}
	if _, err := far.Read(buf); err != io.EOF {
		t.Errorf("after what was held: %v", err)
	}
}

func TestTapOfTheDeadIsSilent(t *testing.T) {
	tp, near, far := served(t)
	tp.hold()
	if _, err := near.Write([]byte("ask")); err != nil {
		t.Fatal(err)
	}
	tp.kill()
	buf := make([]byte, 3)
	if n, err := far.Read(buf); err == nil || err == io.EOF {
		t.Errorf("%q, %v: want a reset", buf[:n], err)
	}
	if _, err := tp.dial(context.Background(), "tcp", "127.0.0.1:1"); !errors.Is(err, errCut) {
		t.Errorf("dial: %v", err)
	}
}

// A member whose coordinator dies before it answers a leave asks the next one, which does not know
// it any more. Nobody has thrown it out.
func TestAnAnswerToALeaveIsNoFence(t *testing.T) {
	for epoch, want := range map[int32]string{-1: "", -2: "", 7: string(Fenced)} {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.MemberEpoch = epoch
		resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
		resp.ErrorCode = kerr.UnknownMemberID.Code
		var log bytes.Buffer
		r := &reader{log: &Log{out: &log}}
		r.answer(asked{key: req.Key(), body: append([]byte{0}, req.AppendTo(nil)...)}, append([]byte{0}, resp.AppendTo(nil)...))
		var e Event
		if log.Len() > 0 {
			if err := json.Unmarshal(log.Bytes(), &e); err != nil {
				t.Fatal(err)
			}
		}
		if string(e.Kind) != want {
			t.Errorf("to one of epoch %d: %q, want %q", epoch, e.Kind, want)
		}
	}
}
