package listener

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Whatever the mix of kinds, of answers now and later, of throttles and of
// connections cut in between: replies come once each and in order, and nothing
// stays taken.
func TestAnyMixOfRequestsIsAnsweredInOrder(t *testing.T) {
	b := newBudget(256 << 10)
	var later sync.WaitGroup
	l := start(t, Config{Budget: b, MaxPipelined: 4, Handler: func(r *Request) {
		reply := func() {
			if p, ok := r.Body.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
				r.ReplyNothing()
				return
			}
			answer(r)
		}
		switch rand.IntN(5) {
		case 0:
			reply()
		case 1:
			r.AddThrottle(time.Duration(rand.IntN(2000)) * time.Microsecond)
			reply()
		default:
			d := time.Duration(rand.IntN(500)) * time.Microsecond
			later.Go(func() {
				time.Sleep(d)
				reply()
			})
		}
	}})
	var clients sync.WaitGroup
	for i := range 16 {
		cut := i%4 == 3
		c := dial(t, l)
		ids := make(chan int32, 1000)
		clients.Go(func() {
			defer close(ids)
			for range 150 {
				acks := int16(rand.IntN(2) - 1)
				var req kmsg.Request
				switch rand.IntN(5) {
				case 0:
					req = metadata()
				case 1:
					req = at(kmsg.NewPtrOffsetCommitRequest(), 8)
				case 2:
					req = apiVersions(3)
				default:
					req = produce(acks, make([]byte, rand.IntN(20<<10)))
				}
				c.corr++
				if _, err := c.Write(formatter.AppendRequest(nil, req, c.corr)); err != nil {
					if !cut {
						t.Error(err)
					}
					return
				}
				if req.Key() != 0 || acks != 0 {
					ids <- c.corr
				}
			}
		})
		clients.Go(func() {
			n := 0
			for want := range ids {
				if n++; cut && n > 50 {
					c.Close()
					for range ids {
					}
					return
				}
				if got, _ := c.receive(); got != want {
					t.Errorf("reply %d, want %d", got, want)
				}
			}
			c.Close()
		})
	}
	clients.Wait()
	waitFor(t, "all connections gone", func() bool { return l.Stats().Open == 0 })
	later.Wait() // no handler runs any more that could add to it
	waitFor(t, "the budget given back", func() bool { return b.inUse() == 0 })
}
