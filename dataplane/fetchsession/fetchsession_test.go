package fetchsession

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"penstock/dataplane/protocol"
)

type tp struct {
	topic string
	n     int32
}

func idOf(topic string) (id protocol.UUID) { copy(id[:], "id of "+topic); return }

func resolve(id protocol.UUID) (string, bool) {
	for _, t := range []string{"a", "b", "c"} {
		if idOf(t) == id {
			return t, true
		}
	}
	return "", false
}

// request names parts in the way of the version: by name or by id.
func request(version int16, id, epoch int32, forget []tp, parts ...tp) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.SessionID, r.SessionEpoch = version, id, epoch
	for _, p := range parts {
		t, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		rp.Partition = p.n
		t.Partitions = append(t.Partitions, rp)
		if version >= 13 {
			t.TopicID = idOf(p.topic)
		} else {
			t.Topic = p.topic
		}
		r.Topics = append(r.Topics, t)
	}
	for _, p := range forget {
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Partitions = []int32{p.n}
		if version >= 13 {
			f.TopicID = idOf(p.topic)
		} else {
			f.Topic = p.topic
		}
		r.ForgottenTopics = append(r.ForgottenTopics, f)
	}
	return r
}

// truth is what the logs hold.
type truth map[tp]protocol.FetchPartition

func (w truth) results(parts []Part) (rs []protocol.FetchPartition) {
	for _, p := range parts {
		r, ok := w[tp{p.Topic, p.Partition}]
		if !ok {
			r = protocol.NewFetchPartition(0)
		}
		r.Partition = p.Partition
		rs = append(rs, r)
	}
	return rs
}

func begin(t interface {
	Helper()
	Fatal(...any)
}, c *Cache, r *kmsg.FetchRequest) *Context {
	t.Helper()
	x, err := c.Begin(r, false, resolve)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func got(r *protocol.FetchResponse) (s string) {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			s += fmt.Sprintf("%s%d ", t.Topic, p.Partition)
		}
	}
	return s
}

// A client that follows the protocol always knows the truth after a reply,
// though it is told only of changes; and the broker reads exactly what the
// client has named.
func TestIncrementalClientAlwaysKnowsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.SampledFrom([]int16{7, 12, 13, 17}).Draw(t, "version")
		c := New(Config{Slots: rapid.IntRange(1, 2).Draw(t, "slots"), Now: func() time.Time { return time.Unix(1, 0) }})
		all := []tp{{"a", 0}, {"a", 1}, {"b", 0}, {"b", 1}, {"c", 7}}
		world, known := truth{}, map[tp]protocol.FetchPartition{}
		for _, p := range all {
			world[p] = protocol.NewFetchPartition(p.n)
		}
		var id, epoch int32
		want := map[tp]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			for range rapid.IntRange(0, 2).Draw(t, "changes") {
				p := rapid.SampledFrom(all).Draw(t, "p")
				w := world[p]
				w.HighWatermark = rapid.Int64Range(0, 3).Draw(t, "hw")
				w.LogStartOffset = rapid.Int64Range(0, 2).Draw(t, "start")
				w.ErrorCode = rapid.SampledFrom([]int16{0, 0, 0, 6}).Draw(t, "err")
				w.Records = protocol.Chunk{Bytes: make([]byte, rapid.IntRange(0, 1).Draw(t, "records"))}
				world[p] = w
			}
			p := rapid.SampledFrom(all).Draw(t, "named")
			var x *Context
			var ask []tp
			if id == 0 || rapid.IntRange(0, 9).Draw(t, "full") == 0 {
				want[p] = true
				for p := range want {
					ask = append(ask, p)
				}
				known = map[tp]protocol.FetchPartition{}
				x = begin(t, c, request(version, id, 0, nil, ask...))
				epoch = 0
			} else {
				var forget []tp
				if want[p] && len(want) > 1 && rapid.Bool().Draw(t, "forget") {
					delete(want, p)
					delete(known, p)
					forget = []tp{p}
				} else {
					want[p] = true
					ask = []tp{p}
				}
				x = begin(t, c, request(version, id, epoch, forget, ask...))
			}
			if len(x.Parts()) != len(want) {
				t.Fatalf("reads %v, want %v", x.Parts(), want)
			}
			for _, p := range x.Parts() {
				if !want[tp{p.Topic, p.Partition}] {
					t.Fatalf("reads %v, which nobody named", p)
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "throttled") == 0 && epoch > 0 {
				r := x.Throttled()
				if r.ErrorCode != 0 || len(r.Topics) != 0 || r.SessionID != id {
					t.Fatalf("throttled: %+v", r)
				}
				epoch++
				continue
			}
			r := x.Reply(world.results(x.Parts()))
			if r.ErrorCode != 0 {
				t.Fatal(r.ErrorCode)
			}
			id, epoch = r.SessionID, epoch+1
			for _, tt := range r.Topics {
				for _, p := range tt.Partitions {
					if (version >= 13) != (tt.TopicID == idOf(tt.Topic)) {
						t.Fatalf("topic %q id %x", tt.Topic, tt.TopicID)
					}
					known[tp{tt.Topic, p.Partition}] = p
				}
			}
			for p := range want {
				k, w := known[p], world[p]
				if k.HighWatermark != w.HighWatermark || k.LogStartOffset != w.LogStartOffset || k.ErrorCode != w.ErrorCode {
					t.Fatalf("%v: client knows %+v, is %+v", p, k, w)
				}
			}
			if c.Len() > 1 {
				t.Fatalf("%d sessions of one client", c.Len())
			}
		}
	})
}

func TestOnlyNewsIsToldAndServedPartitionsGoLast(t *testing.T) {
	c := New(Config{})
	w := truth{}
	for n := range int32(3) {
		w[tp{"a", n}] = protocol.NewFetchPartition(n)
	}
	x := begin(t, c, request(12, 0, 0, nil, tp{"a", 0}, tp{"a", 1}, tp{"a", 2}))
	id := x.Reply(w.results(x.Parts())).SessionID
	round := func(epoch int32, wantRead, wantTold string) {
		t.Helper()
		x := begin(t, c, request(12, id, epoch, nil))
		read := ""
		for _, p := range x.Parts() {
			read += fmt.Sprintf("%s%d ", p.Topic, p.Partition)
		}
		told := got(x.Reply(w.results(x.Parts())))
		if read != wantRead || told != wantTold {
			t.Errorf("epoch %d: read %q told %q, want %q %q", epoch, read, told, wantRead, wantTold)
		}
	}
	round(1, "a0 a1 a2 ", "")
	p := w[tp{"a", 0}]
	p.Records = protocol.Chunk{Bytes: []byte("x")}
	w[tp{"a", 0}] = p
	round(2, "a0 a1 a2 ", "a0 ")
	round(3, "a1 a2 a0 ", "a0 ")
	p.Records = protocol.Chunk{}
	w[tp{"a", 0}] = p
	for i, change := range []func(*protocol.FetchPartition){
		func(p *protocol.FetchPartition) { p.PreferredReadReplica = 4 },
		func(p *protocol.FetchPartition) { p.PreferredReadReplica, p.DivergingEpoch = -1, 3 },
		func(p *protocol.FetchPartition) { p.DivergingEpoch, p.ErrorCode = -1, 6 },
		func(p *protocol.FetchPartition) { p.ErrorCode = 0 }, // the error's end is news, too
	} {
		p := w[tp{"a", 2}]
		change(&p)
		w[tp{"a", 2}] = p
		round(int32(4+i), "a1 a2 a0 ", "a2 ")
	}
	round(8, "a1 a2 a0 ", "")
}

func TestSessionErrors(t *testing.T) {
	c := New(Config{})
	x := begin(t, c, request(12, 0, 0, nil, tp{"a", 0}))
	id := x.Reply(truth{}.results(x.Parts())).SessionID
	f := func(r *kmsg.FetchRequest, want *kerr.Error) {
		t.Helper()
		if _, err := c.Begin(r, false, resolve); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	f(request(12, id+1, 1, nil), kerr.FetchSessionIDNotFound)
	f(request(12, id, 2, nil), kerr.InvalidFetchSessionEpoch)
	f(request(12, id, -7, nil), kerr.InvalidFetchSessionEpoch)
	f(request(13, id, 1, nil), kerr.FetchSessionTopicIDError)
	slow := begin(t, c, request(12, id, 1, nil))
	begin(t, c, request(12, id, 2, nil))
	if r := slow.Reply(truth{}.results(slow.Parts())); r.ErrorCode != kerr.InvalidFetchSessionEpoch.Code || len(r.Topics) != 0 {
		t.Errorf("overtaken request: %+v", r)
	}
	if x := begin(t, c, request(12, id, -1, nil, tp{"b", 1})); len(x.Parts()) != 1 || x.Reply(truth{}.results(x.Parts())).SessionID != 0 {
		t.Error("final epoch did not read without a session")
	}
	f(request(12, id, 3, nil), kerr.FetchSessionIDNotFound) // it has closed the session

	x = begin(t, c, request(12, 0, 0, nil, tp{"a", 0}))
	id = x.Reply(truth{}.results(x.Parts())).SessionID
	if x = begin(t, c, request(12, id, 1, []tp{{"a", 0}})); len(x.Parts()) != 0 || c.Len() != 0 {
		t.Error("a session without partitions lives on")
	}
}

func TestEpochWrapsTo1(t *testing.T) {
	c := New(Config{})
	x := begin(t, c, request(12, 0, 0, nil, tp{"a", 0}))
	id := x.Reply(truth{}.results(x.Parts())).SessionID
	c.sessions[id].epoch = 1<<31 - 1
	begin(t, c, request(12, id, 1<<31-1, nil))
	begin(t, c, request(12, id, 1, nil))
}

func TestUnknownTopicIDIsResolvedOnceItIsKnown(t *testing.T) {
	c := New(Config{})
	known := false
	res := func(id protocol.UUID) (string, bool) {
		if !known {
			return "", false
		}
		return resolve(id)
	}
	x, _ := c.Begin(request(13, 0, 0, nil, tp{"a", 0}), false, res)
	if p := x.Parts()[0]; p.Topic != "" || p.TopicID != idOf("a") {
		t.Fatalf("%+v", p)
	}
	id := x.Reply(truth{}.results(x.Parts())).SessionID
	known = true
	if x, _ = c.Begin(request(13, id, 1, nil), false, res); x.Parts()[0].Topic != "a" {
		t.Error("still unknown")
	}
}

func TestAPartitionNamedTwiceIsReadOnce(t *testing.T) {
	x := begin(t, New(Config{}), request(12, 0, -1, nil, tp{"a", 0}, tp{"b", 0}, tp{"a", 0}))
	if len(x.Parts()) != 2 {
		t.Errorf("%+v", x.Parts())
	}
}

func TestEvictionRule(t *testing.T) {
	const evict = 120 * time.Second
	parts := func(n int) (ps []tp) {
		for i := range n {
			ps = append(ps, tp{"a", int32(i)})
		}
		return ps
	}
	// One slot, held by (privileged, size), used last at age old; a newcomer
	// comes at age now.
	f := func(name string, heldPriv bool, heldSize int, lastUsed, now time.Duration, priv bool, size int, want bool) {
		t.Helper()
		clock := time.Unix(0, 0)
		c := New(Config{Slots: 1, MinEviction: evict, Now: func() time.Time { return clock }})
		open := func(priv bool, n int) int32 {
			x, err := c.Begin(request(12, 0, 0, nil, parts(n)...), priv, nil)
			if err != nil {
				t.Fatal(err)
			}
			return x.Reply(truth{}.results(x.Parts())).SessionID
		}
		held := open(heldPriv, heldSize)
		clock = clock.Add(lastUsed)
		x, _ := c.Begin(request(12, held, 1, nil), heldPriv, nil)
		x.Throttled()
		clock = time.Unix(0, 0).Add(now)
		if got := open(priv, size) != 0; got != want || c.Len() != 1 {
			t.Errorf("%s: got a place %v, want %v (%d sessions)", name, got, want, c.Len())
		}
	}
	f("idle for long: anybody", true, 100, 0, evict+1, false, 1, true)
	f("young, same size", false, 5, 0, time.Second, false, 5, false)
	f("young, newcomer larger", false, 5, 0, time.Second, false, 50, false)
	f("old and in use, newcomer as large", false, 5, evict, evict+1, false, 5, true)
	f("old and in use, newcomer smaller", false, 5, evict, evict+1, false, 4, false)
	f("young client, follower comes", false, 50, 0, time.Second, true, 1, true)
	f("young follower, follower comes", true, 1, 0, time.Second, true, 50, false)
	f("old follower in use, client comes", true, 1, evict, evict+1, false, 50, false)
	f("old follower in use, larger follower comes", true, 1, evict, evict+1, true, 2, true)
}

func TestPartitionsOfAllSessionsAreBounded(t *testing.T) {
	c := New(Config{MaxPartitions: 2})
	x := begin(t, c, request(12, 0, 0, nil, tp{"a", 0}))
	id := x.Reply(truth{}.results(x.Parts())).SessionID
	if x := begin(t, c, request(12, 0, 0, nil, tp{"a", 0}, tp{"a", 1})); x.Reply(truth{}.results(x.Parts())).SessionID != 0 {
		t.Error("a third partition found a place")
	}
	begin(t, c, request(12, id, 1, nil, tp{"a", 1}))
	if _, err := c.Begin(request(12, id, 2, nil, tp{"a", 2}), false, nil); !errors.Is(err, kerr.FetchSessionIDNotFound) {
		t.Errorf("session grew beyond the bound: %v", err)
	}
	if c.Len() != 0 || c.partitions != 0 {
		t.Errorf("%d sessions, %d partitions", c.Len(), c.partitions)
	}
}
