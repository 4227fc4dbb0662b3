package brokertest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wirebytes "encoding/binary"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// customer is a producer that goes on all the time, on a connection of its own.
type customer struct {
	stop    func()
	worst   atomic.Int64 // ns, since the last look
	written atomic.Int64
}

func (s *secured) customer(t *testing.T, topic string) *customer {
	t.Helper()
	c := &customer{}
	w := s.client("alice")
	req := produceOf(topic, 1, batch(t, strings.Repeat("a", 1000)))
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
			}
			began := time.Now()
			resp, err := w.ask(req)
			if err != nil || !slices.Equal(codes(resp), []int16{0}) {
				t.Errorf("the customer is answered %+v, %v", resp, err)
				return
			}
			c.written.Add(1)
			c.worst.Store(max(c.worst.Load(), int64(time.Since(began))))
		}
	}()
	var once sync.Once
	c.stop = func() { once.Do(func() { close(end); <-done }) }
	t.Cleanup(c.stop)
	return c
}

// served says that the customer was, within the bound, in what has gone by.
func (c *customer) served(t *testing.T, bound time.Duration) {
	t.Helper()
	before := c.written.Load()
	Await(t, bound+5*time.Second, "the customer's next record", func() error {
		if c.written.Load() < before+2 {
			return errors.New("none yet")
		}
		return nil
	})
	worst := time.Duration(c.worst.Swap(0))
	t.Logf("the customer waited %v at most", worst.Round(time.Millisecond))
	if worst > bound {
		t.Errorf("the customer had to wait for %v, bound %v", worst, bound)
	}
}

// TestFramesFromHell attacks a broker with what no client sends. What holds
// throughout: every frame is answered or ends its connection, the process lives,
// another client is served within 2 s, and the process takes no more memory
// than 48 MiB above what it took before, where the attackers are strangers or
// send small frames; see TestHostileTenant for large ones.
func TestFramesFromHell(t *testing.T) {
	s := startSecured(t, 1)
	s.topic("orders", 1)
	s.allow("alice", kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLOperationRead, kmsg.ACLOperationWrite)
	n := s.Brokers[0]
	c := s.customer(t, "orders")
	c.served(t, 5*time.Second) // warm
	n.forgetPeak()
	base := n.memory("VmRSS")
	const bound = 48
	part := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			f(t)
			c.served(t, 2*time.Second)
			peak := n.memory("VmHWM")
			t.Logf("%v; memory %d MiB before all, %d MiB at its peak", time.Since(began).Round(time.Millisecond), base, peak)
			if peak > base+bound {
				t.Errorf("memory rose from %d to %d MiB, bound %d", base, peak, bound)
			}
			if n.ended() {
				t.Fatal("the broker has ended")
			}
		})
	}
	stranger := func() *rawConn { return dialWire(t, n.Addr) }
	internal := func() *rawConn { return dialWire(t, s.internal[0]) }
	mallory := func() *rawConn { return s.client("mallory") }
	part("frames that are none", func(t *testing.T) {
		for _, dial := range []func() *rawConn{stranger, internal, mallory} {
			for name, b := range hellFrames() {
				w := dial()
				if _, err := w.Write(b); err != nil {
					t.Fatal(err)
				}
				halfClose(w)
				if got, err := w.frame(); !errors.Is(err, errClosed) {
					t.Errorf("%s: answered %x, %v", name, got, err)
				}
				w.Close()
			}
		}
	})
	part("keys and versions", func(t *testing.T) {
		served := map[int16]bool{}
		for _, a := range protocol.APIs() {
			served[a.Key] = true
			for _, v := range []int16{a.Max + 1, a.Min - 1, -1, -1 << 15, 1<<15 - 1} {
				if v == a.Min-1 && v < 0 {
					continue
				}
				w := mallory()
				b := rawFrame(a.Key, v, make([]byte, 40)...)
				_, _ = w.Write(b)
				got, err := w.frame()
				if a.AnswersAnyVersion() {
					if err != nil || len(got) < 6 || wirebytes.BigEndian.Uint16(got[4:]) != uint16(kerr.UnsupportedVersion.Code) {
						t.Errorf("%s version %d: %x, %v", a.Name, v, got, err)
					}
				} else if !errors.Is(err, errClosed) {
					t.Errorf("%s version %d: %x, %v", a.Name, v, got, err)
				}
				w.Close()
			}
		}
		for key := int16(-2); key < 100; key++ {
			if !served[key] {
				w := mallory()
				_, _ = w.Write(rawFrame(key, 0, 0, 0, 0, 0))
				if got, err := w.frame(); !errors.Is(err, errClosed) {
					t.Errorf("key %d: %x, %v", key, got, err)
				}
				w.Close()
			}
		}
	})
	part("bodies cut at every point", func(t *testing.T) {
		attack(t, mallory, func(a *protocol.API, whole []byte) (frames [][]byte) {
			for n := 4 + protocol.HeaderPrefix; n < len(whole); n++ {
				frames = append(frames, resized(whole[:n]))
			}
			return frames
		})
	})
	part("bodies that end in half a connection", func(t *testing.T) {
		for _, dial := range []func() *rawConn{stranger, mallory} {
			for _, a := range protocol.APIs() {
				whole := format.AppendRequest(nil, sample(t, a.Key, "orders", "team"), 1)
				for n := 1; n < len(whole); n += 1 + len(whole)/7 {
					w := dial()
					_, _ = w.Write(whole[:n])
					halfClose(w)
					if got, err := w.frame(); !errors.Is(err, errClosed) {
						t.Errorf("%s cut at %d: %x, %v", a.Name, n, got, err)
					}
					w.Close()
				}
			}
		}
	})
	part("huge lengths at every place", func(t *testing.T) {
		huge := [][]byte{{0x7f, 0xff, 0xff, 0xff}, {0x7f, 0xff}, {0xff, 0xff, 0xff, 0xff, 0x07}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, {0x80, 0, 0, 0}}
		body := 4 + protocol.HeaderPrefix
		attack(t, mallory, func(a *protocol.API, whole []byte) (frames [][]byte) {
			for n := body; n < len(whole); n++ {
				for _, h := range huge {
					b := slices.Concat(whole[:n], h, whole[min(len(whole), n+len(h)):])
					frames = append(frames, resized(b))
				}
			}
			return frames
		})
		for _, key := range []int16{17, 18, 36} { // the same from strangers
			whole := format.AppendRequest(nil, sample(t, key, "", ""), 1)
			for n := body; n < len(whole); n++ {
				for _, h := range huge {
					w := stranger()
					_, _ = w.Write(resized(slices.Concat(whole[:n], h)))
					if _, err := w.frame(); err != nil && !errors.Is(err, errClosed) {
						t.Error(err)
					}
					w.Close()
				}
			}
		}
	})
	part("garbage after the login", func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 2))
		attack(t, mallory, func(a *protocol.API, whole []byte) (frames [][]byte) {
			for range 30 {
				b := bytes.Clone(whole)
				for range 1 + rnd.IntN(4) {
					b[12+rnd.IntN(len(b)-12)] = byte(rnd.Uint32())
				}
				frames = append(frames, b)
			}
			return frames
		})
	})
	part("bombs of tags and empty elements", func(t *testing.T) {
		for name, b := range bombs() {
			w := mallory()
			go func() { _, _ = w.Write(b) }()
			if got, err := w.frame(); !errors.Is(err, errClosed) {
				t.Errorf("%s: %x, %v", name, got, err)
			}
			w.Close()
		}
	})
	part("strangers that stay", func(t *testing.T) {
		// 400 connections that say nothing, the start of a frame, or all but the
		// last byte of the largest that a stranger may send.
		for i := range 400 {
			w := stranger()
			b := resized(slices.Concat(rawFrame(36, 2), make([]byte, 64<<10-20)))
			switch i % 3 {
			case 1:
				_, _ = w.Write(b[:10])
			case 2:
				_, _ = w.Write(b[:len(b)-1])
			}
		}
	})
	part("large frames that do not come", func(t *testing.T) {
		// Twelve bytes each that promise 100 MB: in all ten times what the broker
		// lets requests take.
		for range 25 {
			w := mallory()
			_, _ = w.Write(append(wirebytes.BigEndian.AppendUint32(nil, 100<<20), rawFrame(0, 11)[4:]...))
		}
	})
	part("large requests between brokers from a client", func(t *testing.T) {
		for _, a := range protocol.APIs() {
			if a.Has(protocol.InterBroker) {
				w := mallory()
				b := resized(slices.Concat(rawFrame(a.Key, a.Max), make([]byte, 64<<10)))
				_, _ = w.Write(b)
				if got, err := w.frame(); !errors.Is(err, errClosed) {
					t.Errorf("%s: %x, %v", a.Name, got, err)
				}
				w.Close()
			}
		}
	})
	part("frames that drip", func(t *testing.T) {
		whole := format.AppendRequest(nil, sample(t, 3, "orders", ""), 1)
		w := mallory()
		for _, b := range whole {
			_, _ = w.Write([]byte{b})
			time.Sleep(2 * time.Millisecond)
		}
		if _, err := w.frame(); err != nil {
			t.Error(err)
		}
	})
}

// TestStrangersLeaveTheLogItsFiles opens more connections than the process may
// have files. What needs a new file must still work, and so must a login as soon
// as connections are free again.
func TestStrangersLeaveTheLogItsFiles(t *testing.T) {
	const files = 300
	s := startSecuredBy(t, []string{"prlimit", fmt.Sprintf("--nofile=%d", files)}, 1)
	s.topic("orders", 1, "segment.bytes=1048576")
	s.allow("alice", kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLOperationWrite)
	w := s.client("alice")
	var strangers []*rawConn
	for _, addr := range []string{s.Brokers[0].Addr, s.internal[0]} {
		for range files + 50 {
			strangers = append(strangers, dialWire(t, addr))
		}
	}
	for range 40 { // 32 MB: some thirty new segments, of three files each
		if got := codes(w.must(produceOf("orders", 1, sized(t, 800_000)))); !slices.Equal(got, []int16{0}) {
			t.Fatalf("producing: %v", got)
		}
	}
	for _, c := range strangers {
		c.Close()
	}
	Await(t, 10*time.Second, "a new login", func() error {
		c := dialWire(t, s.Brokers[0].Addr)
		defer c.Close()
		req := kmsg.NewPtrApiVersionsRequest()
		req.SetVersion(0)
		_, err := c.ask(req)
		return err
	})
	s.client("alice").must(metadataOf("orders"))
}

// attack sends frames made of a sample of every kind of request, four
// connections at a time; each must be answered or end its connection.
func attack(t *testing.T, dial func() *rawConn, frames func(a *protocol.API, whole []byte) [][]byte) {
	t.Helper()
	work := queueOf(t, frames)
	var wg sync.WaitGroup
	var answered, cut atomic.Int64
	for range 4 {
		wg.Go(func() {
			var w *rawConn
			for f := range work {
				if w == nil {
					w = dial()
				}
				_, err := w.Write(f)
				if err == nil {
					_, err = w.frame()
				} else {
					err = errClosed
				}
				switch {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, errClosed):
					cut.Add(1)
					w.Close()
					w = nil
				default:
					t.Errorf("%x: %v", f, err)
					w.Close()
					w = nil
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d frames answered, %d cut", answered.Load(), cut.Load())
}

func queueOf(t *testing.T, frames func(a *protocol.API, whole []byte) [][]byte) <-chan []byte {
	var all [][]byte
	for _, a := range protocol.APIs() {
		all = append(all, frames(a, format.AppendRequest(nil, sample(t, a.Key, "orders", "team"), 1))...)
	}
	ch := make(chan []byte, len(all))
	for _, f := range all {
		ch <- f
	}
	close(ch)
	return ch
}

func rawFrame(key, version int16, body ...byte) []byte {
	b := make([]byte, 4, 64)
	b = wirebytes.BigEndian.AppendUint16(b, uint16(key))
	b = wirebytes.BigEndian.AppendUint16(b, uint16(version))
	b = wirebytes.BigEndian.AppendUint32(b, 1)
	return resized(append(append(b, 0xff, 0xff), body...))
}

// resized writes a frame's length.
func resized(b []byte) []byte {
	b = bytes.Clone(b)
	wirebytes.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func halfClose(w *rawConn) { _ = w.Conn.(interface{ CloseWrite() error }).CloseWrite() }

func hellFrames() map[string][]byte {
	rnd := rand.New(rand.NewPCG(3, 4))
	garbage := make([]byte, 5000)
	for i := range garbage {
		garbage[i] = byte(rnd.Uint32())
	}
	size := func(n int32) []byte { return wirebytes.BigEndian.AppendUint32(nil, uint32(n)) }
	m := map[string][]byte{
		"nothing": nil, "half a length": {0, 0}, "length -1": size(-1), "length -2^31": size(-1 << 31), "length 0": size(0),
		"length 7":            append(size(7), 0, 18, 0, 0, 0, 0, 0),
		"2 GB":                append(size(1<<31-1), rawFrame(18, 3)[4:]...),
		"100 MB and a byte":   append(size(100<<20+1), rawFrame(0, 9)[4:]...),
		"client id too long":  append(rawFrame(18, 0)[:12], 0x7f, 0xff),
		"client id of -2":     append(rawFrame(18, 0)[:12], 0xff, 0xfe),
		"header without end":  rawFrame(18, 3, 0xff, 0xff, 0xff, 0xff, 0x0f),
		"token of 2 GB":       rawFrame(36, 1, 0x7f, 0xff, 0xff, 0xff),
		"token of a varint":   rawFrame(36, 2, 0, 0xff, 0xff, 0xff, 0xff, 0x07),
		"huge array":          rawFrame(3, 1, 0x7f, 0xff, 0xff, 0xff),
		"huge compact array":  rawFrame(3, 9, 0, 0xff, 0xff, 0xff, 0xff, 0x07),
		"bytes after the end": rawFrame(18, 0, 1, 2, 3),
		"TLS":                 {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 1, 2, 3, 4, 5},
		"HTTP":                []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"zeros":               make([]byte, 4096), "ones": bytes.Repeat([]byte{0xff}, 4096),
	}
	for i := range 20 {
		m[fmt.Sprint("garbage ", i)] = garbage[i*100 : i*100+2000]
	}
	return m
}

// bombs are frames whose decoded form would take many times their size.
func bombs() map[string][]byte {
	const n = 700_000
	tags := wirebytes.AppendUvarint([]byte{0}, n+1)
	for range n {
		tags = append(tags, 1, 1, 99, 0)
	}
	return map[string][]byte{
		"tags": rawFrame(3, 9, append(tags, 0, 0, 0, 0)...),
		"empty topics": rawFrame(0, 9, append(append([]byte{0, 0, 0, 1, 0, 0, 0, 0},
			wirebytes.AppendUvarint(nil, n+1)...), bytes.Repeat([]byte{1, 1, 0}, n)...)...),
		"tags of a stranger's request": rawFrame(18, 3, append(wirebytes.AppendUvarint([]byte{0, 1, 1}, 30000), bytes.Repeat([]byte{9, 0}, 30000)...)...),
	}
}
