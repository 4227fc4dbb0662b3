package brokertest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestSlowReadersLeaveTheLogItsFiles has more slow readers than the process has files for:
// each takes a connection, and keeps the file open that its reply is sent from. Appends, which
// need new files, must go on: a failed open takes the folder offline, and here the broker with it.
// Readers that are too many are refused, the others get all.
func TestSlowReadersLeaveTheLogItsFiles(t *testing.T) {
	const files = 300
	c := Start(t, Options{Wrap: []string{"prlimit", fmt.Sprintf("--nofile=%d", files)}})
	const readers = files/2 - 10
	c.CreateTopic("wide", readers, 1)
	c.CreateTopic("orders", 1, 1, "segment.bytes=1048576")
	b := &target{addr: c.Brokers[0].Addr}
	w := b.dial(t)
	for p := range int32(readers) {
		for range 2 {
			req := produceTo(1, map[string]map[int32][]byte{"wide": {p: sized(t, 1_000_000)}})
			if got := codes(ask[*kmsg.ProduceResponse](w, req)); !slices.Equal(got, []int16{0}) {
				t.Fatalf("filling: %v", got)
			}
		}
	}
	var slow []*wire
	for p := range int32(readers) {
		s := b.dial(t)
		req := fetchOf("wide", p, 0)
		req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = 2<<20, 2<<20
		s.send(req)
		slow = append(slow, s)
	}
	for i := range 40 {
		if got := codes(ask[*kmsg.ProduceResponse](w, produceOf("orders", 1, sized(t, 800_000)))); !slices.Equal(got, []int16{0}) {
			t.Errorf("producing %d: %v, with %d files open", i, got, descriptors(t, c.Brokers[0]))
			break
		}
	}
	served := 0
	for p, s := range slow {
		resp, err := s.receive(fetchOf("wide", 0, 0))
		if err != nil {
			continue // refused
		}
		served++
		got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if got.ErrorCode != 0 || len(got.RecordBatches) < 1_000_000 {
			t.Errorf("reader %d: %v, %d bytes", p, kerr.ErrorForCode(got.ErrorCode), len(got.RecordBatches))
		}
	}
	if served < files/4 {
		t.Errorf("%d of %d readers were served", served, readers)
	}
}

// TestPollOfAClientThatIsGoneEnds: nobody reads from a connection whose poll is pending, so
// its end is not seen. A poll as long as a client likes would keep it for weeks.
func TestPollOfAClientThatIsGoneEnds(t *testing.T) {
	c := Start(t, Options{Settings: []string{"connections.max.idle.ms=3000"}})
	c.CreateTopic("quiet", 1, 1)
	n := c.Brokers[0]
	b := &target{addr: n.Addr}
	before := descriptors(t, n)
	for range 50 {
		w := b.dial(t)
		req := fetchOf("quiet", 0, 0)
		req.MaxWaitMillis, req.MinBytes = math.MaxInt32, math.MaxInt32
		w.send(req)
		w.Close()
	}
	Await(t, 15*time.Second, "the connections' end", func() error {
		if now := descriptors(t, n); now > before+20 {
			return fmt.Errorf("%d descriptors, %d before", now, before)
		}
		return nil
	})
}

// TestOddFetches asks for what no client does; the broker answers each and keeps its memory.
func TestOddFetches(t *testing.T) {
	c := Start(t, Options{})
	c.CreateTopic("odd", 2, 1)
	n := c.Brokers[0]
	b := &target{addr: n.Addr}
	w := b.dial(t)
	mustProduce(w, "odd", sized(t, 1000), 0)
	before := residentKB(t, n)
	for _, v := range []struct {
		what   string
		change func(r *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition)
		want   *kerr.Error
		bytes  bool
	}{
		{"all limits negative", func(r *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) {
			r.MaxBytes, r.MinBytes, r.MaxWaitMillis, p.PartitionMaxBytes = -5, -7, -1, math.MinInt32
		}, nil, true},
		{"all limits huge", func(r *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) {
			r.MaxBytes, p.PartitionMaxBytes = math.MaxInt32, math.MaxInt32
		}, nil, true},
		{"offset below 0", func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = -1 }, kerr.OffsetOutOfRange, false},
		{"least offset", func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = math.MinInt64 }, kerr.OffsetOutOfRange, false},
		{"largest offset", func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = math.MaxInt64 }, kerr.OffsetOutOfRange, false},
		{"epoch of the future", func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = math.MaxInt32 }, kerr.UnknownLeaderEpoch, false},
		{"last epoch of the future", func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.LastFetchedEpoch = math.MaxInt32 }, kerr.OffsetOutOfRange, false},
		{"partition below 0", func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.Partition = -1 }, kerr.UnknownTopicOrPartition, false},
		{"isolation level 7", func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) { r.IsolationLevel = 7 }, nil, true},
	} {
		req := fetchOf("odd", 0, 0)
		v.change(req, &req.Topics[0].Partitions[0])
		resp := ask[*kmsg.FetchResponse](w, req)
		p := resp.Topics[0].Partitions[0]
		wantCode(t, v.what, p.ErrorCode, v.want)
		if (len(p.RecordBatches) > 0) != v.bytes {
			t.Errorf("%s: %d bytes", v.what, len(p.RecordBatches))
		}
	}
	// A partition named many times is read once.
	many := fetchOf("odd", 0, 0)
	for range 100_000 {
		many.Topics[0].Partitions = append(many.Topics[0].Partitions, many.Topics[0].Partitions[0])
	}
	if resp := ask[*kmsg.FetchResponse](w, many); len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Errorf("%d topics, %d partitions", len(resp.Topics), len(resp.Topics[0].Partitions))
	}
	// 100,000 partitions that are not there, one topic each.
	wide := fetchOf("odd", 0, 0)
	wide.Topics = nil
	for i := range 100_000 {
		addTopic := kmsg.NewFetchRequestTopic()
		addTopic.Topic, addTopic.Partitions = fmt.Sprintf("none-%d", i), many.Topics[0].Partitions[:1]
		wide.Topics = append(wide.Topics, addTopic)
	}
	_ = w.SetDeadline(time.Now().Add(5 * time.Minute))
	for range 5 {
		if resp := ask[*kmsg.FetchResponse](w, wide); len(resp.Topics) != 100_000 {
			t.Errorf("%d topics", len(resp.Topics))
		}
	}
	// Another's session: ids are not told, but may be guessed. It is a state of the broker, not a right.
	session := fetchOf("odd", 0, 0)
	session.SessionEpoch = 0
	id := ask[*kmsg.FetchResponse](w, session).SessionID
	stranger := b.dial(t)
	theirs := fetchOf("odd", 0, 0)
	theirs.SessionID, theirs.SessionEpoch, theirs.Topics = id, 5, nil
	wantCode(t, "a wrong epoch in another's session", ask[*kmsg.FetchResponse](stranger, theirs).ErrorCode, kerr.InvalidFetchSessionEpoch)
	theirs.SessionID = id ^ 1
	wantCode(t, "no session", ask[*kmsg.FetchResponse](stranger, theirs).ErrorCode, kerr.FetchSessionIDNotFound)
	session.SessionID, session.SessionEpoch, session.Topics = id, 1, nil
	wantCode(t, "the session afterwards", ask[*kmsg.FetchResponse](w, session).ErrorCode, nil)
	if now := residentKB(t, n); now > before+200<<10 {
		t.Errorf("%d KB resident, %d before", now, before)
	}
}

// TestPartitionTwiceInOneProduce: what is named twice is appended twice, in order.
func TestPartitionTwiceInOneProduce(t *testing.T) {
	c := Start(t, Options{})
	c.CreateTopic("twice", 1, 1)
	w := (&target{addr: c.Brokers[0].Addr}).dial(t)
	req := produceOf("twice", 1, batch(t, "a"))
	again := req.Topics[0].Partitions[0]
	again.Records = batch(t, "b")
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, again)
	resp := ask[*kmsg.ProduceResponse](w, req)
	var got []string
	for _, p := range resp.Topics[0].Partitions {
		got = append(got, fmt.Sprintf("%d at %d", p.ErrorCode, p.BaseOffset))
	}
	if s := strings.Join(got, ", "); s != "0 at 0, 0 at 1" {
		t.Error(s)
	}
	if s := strings.Join(values(t, fetchOne(w, "twice", 0).RecordBatches), " "); s != "0:a 1:b" {
		t.Error(s)
	}
}
