package listener

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

func raw(key, version int16, body ...byte) []byte {
	b := make([]byte, 4, 64)
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 1)
	b = append(b, 0xff, 0xff) // null client id
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func size(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// hellFrames are closed without an answer, before the login and after.
func hellFrames() map[string][]byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	garbage := make([]byte, 2000)
	for i := range garbage {
		garbage[i] = byte(rnd.Uint32())
	}
	return map[string][]byte{
		"negative length":                size(-1),
		"most negative length":           size(-1 << 31),
		"length 0":                       size(0),
		"length too short for a header":  append(size(7), 0, 18, 0, 0, 0, 0, 0),
		"2 GB":                           append(size(1<<31-1), raw(18, 3)[4:]...),
		"over the largest request":       append(size(100<<20+1), raw(0, 9)[4:]...),
		"unknown key":                    raw(999, 0),
		"negative key":                   raw(-1, 0),
		"known to Kafka, not served":     raw(52, 0),
		"version too new":                raw(3, 99),
		"negative version":               raw(3, -1),
		"version below the served":       raw(0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		"client id beyond the frame":     append(raw(18, 0)[:12], 0x7f, 0xff),
		"client id of length -2":         append(raw(18, 0)[:12], 0xff, 0xfe),
		"header tags without an end":     raw(18, 3, 0xff, 0xff, 0xff, 0xff, 0x0f),
		"string of 5 bytes 0xff":         raw(18, 3, 0, 0xff, 0xff, 0xff, 0xff, 0xff),
		"uvarint without an end":         raw(18, 3, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80),
		"token of 2 GB in a small frame": raw(36, 1, 0x7f, 0xff, 0xff, 0xff),
		"huge array, old encoding":       raw(3, 1, 0x7f, 0xff, 0xff, 0xff),
		"huge array, flexible":           raw(3, 9, 0, 0xff, 0xff, 0xff, 0xff, 0x07),
		"array as long as the frame":     raw(3, 9, append([]byte{0, 200, 1}, make([]byte, 150)...)...),
		"bytes after the body":           raw(18, 0, 1, 2, 3),
		"TLS hello":                      {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 1, 2, 3, 4, 5},
		"HTTP":                           []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"garbage":                        garbage,
	}
}

func TestFramesFromHellCloseTheirConnectionQuietly(t *testing.T) {
	for _, sasl := range []bool{true, false} {
		l := start(t, Config{SASL: sasl})
		good := dial(t, l)
		for name, b := range hellFrames() {
			t.Run(name, func(t *testing.T) {
				c := dial(t, l)
				c.write(b)
				// Kafka answers nothing either. What is too short to be refused at
				// once is refused when no more comes.
				if len(b) < 4+protocol.HeaderPrefix || int(binary.BigEndian.Uint32(b)) > len(b)-4 {
					closeWrite(c)
				}
				c.mustClose()
			})
		}
		good.call(apiVersions(3))
		if l.Stats().Panics != 0 {
			t.Error("a handler or decoder has panicked")
		}
	}
}

func closeWrite(c *client) { c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

func TestEveryPrefixOfARequestIsSurvived(t *testing.T) {
	l := start(t, Config{})
	for _, req := range []kmsg.Request{apiVersions(3), metadata(), produce(1, []byte("abc"))} {
		whole := formatter.AppendRequest(nil, req, 1)
		for n := range whole {
			c := dial(t, l)
			c.write(whole[:n]) // the connection breaks within the frame
			closeWrite(c)
			c.mustClose()
			c.Close()
			if n <= 4+protocol.HeaderPrefix {
				continue
			}
			d := dial(t, l) // the frame itself is cut short, and says so
			cut := bytes.Clone(whole[:n])
			binary.BigEndian.PutUint32(cut, uint32(n-4))
			d.write(cut)
			d.mustClose()
			d.Close()
		}
	}
}

// tagBomb is a Metadata body of n bytes at most whose decoded form would take
// some hundred times as much: topics with one unknown tag each.
func tagBomb(n int) []byte {
	topics := (n - 16) / 5
	b := binary.AppendUvarint([]byte{0}, uint64(topics)+1)
	for range topics {
		b = append(b, 1, 1, 99, 0) // empty name; one tag, number 99, no bytes
	}
	return append(b, 0, 0, 0, 0)
}

func TestSmallFramesCannotTakeMuchMemory(t *testing.T) {
	l := start(t, Config{Budget: newBudget(32 << 20)})
	bombs := map[string][]byte{
		"tags":        raw(3, 9, tagBomb(3<<20)...),
		"before auth": raw(18, 3, append(binary.AppendUvarint([]byte{0, 1, 1}, 30000), bytes.Repeat([]byte{9, 0}, 30000)...)...),
		"empty topics of a Produce": raw(0, 9, append(append([]byte{0, 0, 0, 1, 0, 0, 0, 0},
			binary.AppendUvarint(nil, 1_000_001)...), bytes.Repeat([]byte{1, 1, 0}, 1_000_000)...)...),
	}
	for name, b := range bombs {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c := dial(t, l)
			go c.Write(b)
			c.mustClose()
			runtime.ReadMemStats(&after)
			// The frame itself, rounded up to its size class, and a little.
			if grew := after.TotalAlloc - before.TotalAlloc; grew > uint64(2*len(b)+1<<20) {
				t.Errorf("a frame of %d bytes made the broker allocate %d", len(b), grew)
			}
		})
	}
}

// The bound that the package states: requests of a login take at most
// MaxFrameBeforeAuth and 256 KiB each; the rest is in the budget.
func TestMemoryStaysBoundedUnderManyHostileConnections(t *testing.T) {
	const limit, conns = 8 << 20, 40
	b := newBudget(limit)
	l := start(t, Config{Budget: b, FrameTimeout: 300 * time.Millisecond})
	strangers := start(t, Config{SASL: true, FrameTimeout: 300 * time.Millisecond})
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var cs []*client
	for range conns {
		c := dial(t, l) // promises 6 MB and sends little of it: 240 MB in all
		c.write(promise(6<<20, readBufferSize))
		d := dial(t, strangers)
		d.write(append(append(size(60<<10), raw(18, 3)[4:]...), make([]byte, readBufferSize)...))
		cs = append(cs, c, d)
	}
	waitFor(t, "a connection holds its frame", func() bool { return b.inUse() > 6<<20 })
	waitFor(t, "all strangers read", func() bool { return strangers.cfg.Buffers.InUse() == conns })
	runtime.GC()
	runtime.ReadMemStats(&now)
	bound := int64(limit) + conns*(128<<10) + 2*conns*(32<<10) // frames rounded up, and the connections themselves
	if grew := int64(now.HeapAlloc) - int64(before.HeapAlloc); grew > bound {
		t.Errorf("heap grew by %d KiB, bound %d KiB", grew>>10, bound>>10)
	}
	b.mu.Lock()
	if b.peak > limit {
		t.Errorf("budget exceeded: %d", b.peak)
	}
	b.mu.Unlock()
	for _, c := range cs[1:2] {
		c.mustClose() // slow senders are cut
	}
	for _, c := range cs {
		c.Close()
	}
	waitFor(t, "budget free again", func() bool { return b.inUse() == 0 })
	dial(t, l).call(metadata())
}

// promise is the beginning of a Produce of n bytes.
func promise(n int32, sent int) []byte {
	b := append(size(n), raw(0, 9)[4:]...)
	return append(b, make([]byte, sent-len(b))...)
}

func TestAPromiseAloneTakesNoMemory(t *testing.T) {
	b := newBudget(8 << 20)
	l := start(t, Config{Budget: b})
	for range 20 {
		dial(t, l).write(promise(6<<20, readBufferSize-1))
	}
	whole := formatter.AppendRequest(nil, metadata(), 1)
	for range 20 {
		dial(t, l).write(whole[:len(whole)-1])
	}
	dial(t, l).call(metadata())
	if n := b.inUse(); n != 0 {
		t.Errorf("%d bytes are taken by requests that have not come", n)
	}
}

func TestAStalledSenderGivesWayToThoseWhoWait(t *testing.T) {
	b := newBudget(8 << 20)
	l := start(t, Config{Budget: b})
	silent := dial(t, l)
	silent.write(promise(6<<20, 2*readBufferSize))
	waitFor(t, "the silent one holds its frame", func() bool { return b.inUse() > 6<<20 })
	time.Sleep(stalledAfter * 3 / 2) // nobody waits: it may take its time
	if l.Stats().Open != 1 {
		t.Fatal("a slow sender was cut though nobody waited")
	}
	honest := dial(t, l)
	began := time.Now()
	go honest.write(formatter.AppendRequest(nil, produce(1, make([]byte, 4<<20)), 1))
	honest.receive()
	if took := time.Since(began); took > 4*stalledAfter {
		t.Errorf("the one who waited was served after %v", took)
	}
	silent.mustClose()
}

func TestRequestsBetweenBrokersAreSmallWhereOnlyClientsAre(t *testing.T) {
	big := kmsg.NewPtrUpdateMetadataRequest()
	big.SetVersion(5)
	for i := range 2000 {
		s := kmsg.NewUpdateMetadataRequestTopicState()
		s.Topic = "a topic with a name of some length " + string(rune('a'+i%26))
		big.TopicStates = append(big.TopicStates, s)
	}
	small := kmsg.NewPtrUpdateMetadataRequest()
	small.SetVersion(5)
	clients, brokers := start(t, Config{ClientsOnly: true}), start(t, Config{})
	dial(t, clients).call(small) // so that its right can be checked
	dial(t, brokers).call(big)
	c := dial(t, clients)
	c.send(big)
	c.mustClose()
}

func TestAStrangerIsCutWhateverItAsks(t *testing.T) {
	l := start(t, Config{SASL: true, LoginTimeout: 300 * time.Millisecond, IdleTimeout: -1})
	silent, chatty := dial(t, l), dial(t, l)
	for range 5 {
		chatty.call(apiVersions(3))
		time.Sleep(20 * time.Millisecond)
	}
	chatty.mustClose()
	silent.mustClose()
	open := start(t, Config{LoginTimeout: 50 * time.Millisecond})
	c := dial(t, open)
	time.Sleep(100 * time.Millisecond)
	c.call(metadata()) // no login is asked for
}

func TestSlowSenderIsCutAndItsMemoryFreed(t *testing.T) {
	b := newBudget(1 << 20)
	l := start(t, Config{Budget: b, FrameTimeout: 100 * time.Millisecond})
	f := func(part []byte) {
		t.Helper()
		c := dial(t, l)
		c.write(part)
		c.mustClose()
	}
	whole := formatter.AppendRequest(nil, produce(1, make([]byte, 1000)), 1)
	f(whole[:1])
	f(whole[:6])
	f(whole[:500])
	waitFor(t, "budget free again", func() bool { return b.inUse() == 0 })
}

func TestRequestsWaitForTheBudgetWhileTheLoginGoesOn(t *testing.T) {
	b := newBudget(100 << 10)
	var g gate
	l := start(t, Config{Budget: b, Handler: func(r *Request) {
		if r.Key == 0 {
			g.handle(r)
			return
		}
		answer(r)
	}})
	first, second, third := dial(t, l), dial(t, l), dial(t, l)
	first.send(produce(-1, make([]byte, 80<<10)))
	g.get(t, 0)
	second.send(produce(-1, make([]byte, 80<<10)))
	third.call(apiVersions(3)) // no memory of the budget
	if n := g.n.Load(); n != 1 {
		t.Fatalf("%d requests in memory", n)
	}
	g.get(t, 0).ReleaseBody() // as the log does after the append
	g.get(t, 1).Reply(kmsg.NewPtrProduceResponse())
	g.get(t, 0).Reply(kmsg.NewPtrProduceResponse())
	first.receive()
	second.receive()
}

func TestHalfClosedClientStillGetsItsReply(t *testing.T) {
	var g gate
	l := start(t, Config{Handler: g.handle})
	c := dial(t, l)
	c.send(metadata())
	closeWrite(c)
	g.get(t, 0).Reply(kmsg.NewPtrMetadataResponse())
	c.receive()
	c.mustClose()
}

// A request of a connection that has vanished is answered into the void.
func TestVanishedClientLeaksNothing(t *testing.T) {
	var g gate
	b := newBudget(1 << 20)
	l := start(t, Config{Handler: g.handle, Budget: b})
	for i := range 4 {
		c := dial(t, l)
		c.send(produce(-1, []byte("x")))
		g.get(t, i)
		c.Conn.(interface{ SetLinger(int) error }).SetLinger(0) // reset
		c.Close()
	}
	waitFor(t, "all connections gone", func() bool { return l.Stats().Open == 0 })
	for i := range 4 {
		g.get(t, i).Reply(kmsg.NewPtrProduceResponse())
	}
	if b.inUse() != 0 {
		t.Errorf("budget in use %d", b.inUse())
	}
}

func TestAnIdleConnectionTakesLittleMemory(t *testing.T) {
	const conns = 200
	l := start(t, Config{})
	take := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	before := take()
	for range conns {
		c := dial(t, l)
		c.call(apiVersions(3))
		c.call(metadata())
	}
	if per := (take() - before) / conns; per > 24<<10 { // both ends
		t.Errorf("%d bytes a connection", per)
	} else {
		t.Logf("%d bytes a connection", per)
	}
}

// FuzzStream sends any bytes on a connection that needs no login.
func FuzzStream(f *testing.F) {
	for _, b := range hellFrames() {
		f.Add(b)
	}
	f.Add(append(formatter.AppendRequest(nil, apiVersions(3), 1), formatter.AppendRequest(nil, produce(1, []byte("abc")), 2)...))
	l := start(f, Config{Budget: newBudget(64 << 20), FrameTimeout: time.Second})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := dial(t, l)
		defer c.Close()
		go func() {
			c.Write(b)
			closeWrite(c)
		}()
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			t.Error("connection neither ended nor served")
		}
		if l.Stats().Panics > 0 {
			t.Error("panic")
		}
	})
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
