package nemesis

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo answers each line with itself until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

type talker struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *talker {
	t.Helper()
	c, err := net.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &talker{c, bufio.NewReader(c)}
}

func (c *talker) say(t *testing.T, s string) {
	t.Helper()
	if _, err := c.Write([]byte(s + "\n")); err != nil {
		t.Fatal(err)
	}
}

func (c *talker) hear(t *testing.T, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := c.r.ReadString('\n'); err != nil || got != want+"\n" {
		t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

// silent says that nothing comes and the connection stays.
func (c *talker) silent(t *testing.T) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if got, err := c.r.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %q, %v through a cut", got, err)
	}
}

func (c *talker) ends(t *testing.T) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := c.r.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %q, %v; want the end", got, err)
	}
}

func TestCutHoldsOneDirectionOfOnePair(t *testing.T) {
	target := echo(t)
	n := NewNetwork(nil)
	t.Cleanup(n.Close)
	door := func(from Party) *talker {
		addr, err := n.Door(9, func() string { return target }, from)
		if err != nil {
			t.Fatal(err)
		}
		return dial(t, addr)
	}
	a, b := door(1), door(2)
	for _, c := range []*talker{a, b} {
		c.say(t, "first")
		c.hear(t, "first")
	}
	n.Cut(1, 9)
	a.say(t, "late")
	a.silent(t)
	b.say(t, "others are not cut")
	b.hear(t, "others are not cut")
	n.Heal(1, 9, false)
	a.hear(t, "late")

	n.Cut(9, 1) // the way back
	a.say(t, "lost")
	a.silent(t)
	b.say(t, "untouched")
	n.Heal(9, 1, true)
	a.ends(t)
	b.hear(t, "untouched")

	// A new connection meets the cut, too: it is answered only after the heal.
	n.Cut(9, 2)
	d := door(2)
	d.say(t, "hello")
	d.silent(t)
	n.Heal(9, 2, false)
	d.hear(t, "hello")

	// The end of a connection is not heard of through a cut either.
	n.Cut(2, 9)
	n.Cut(9, 2)
	d.silent(t)
	n.Heal(9, 2, false)
	n.Heal(2, 9, false)
	n.Slow(2, 9, 50*time.Millisecond)
	d.say(t, "slowly")
	began := time.Now()
	d.hear(t, "slowly")
	if took := time.Since(began); took < 40*time.Millisecond {
		t.Errorf("a slow link took %v", took)
	}
}

func TestOwnerOfAConnectionIsFound(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := dial(t, l.Addr().String())
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	remote, local := s.RemoteAddr().(*net.TCPAddr), s.LocalAddr().(*net.TCPAddr)
	if got, ok := ownerOf(remote, local, map[Party]int{4: os.Getpid()}); !ok || got != 4 {
		t.Errorf("owner %d, %v", got, ok)
	}
	if got, ok := ownerOf(remote, local, map[Party]int{1: 1}); ok {
		t.Errorf("process 1 owns our socket: %d", got)
	}
	c.Close()
}
