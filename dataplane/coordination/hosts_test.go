package coordination

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"penstock/dataplane/coordination/zktest"
)

func TestServerThatAcceptsAndNeverAnswersIsGivenUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var wg sync.WaitGroup
	var conns []net.Conn // the acceptor's until wg is done
	target := zktest.Shared(t).Addr()
	wg.Go(func() {
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			if i == 0 {
				continue // says nothing, as a server does that is just starting
			}
			s, err := net.Dial("tcp", target)
			if err != nil {
				return
			}
			conns = append(conns, s)
			wg.Go(func() { io.Copy(s, c); s.Close() })
			wg.Go(func() { io.Copy(c, s); c.Close() })
		}
	})
	c, err := Connect(testContext(t), Config{Connect: l.Addr().String() + zktest.Path(), SessionTimeout: 4 * time.Second})
	must(t, err)
	c.Close()
	l.Close()
	wg.Wait()
	for _, c := range conns {
		c.Close()
	}
}
