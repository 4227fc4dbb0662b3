package txn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
)

// TestManyAtOnceWhileTheCoordinatorMoves has producers do everything at once under a
// few ids, rightly and wrongly, with leadership coming and going and the sweeps running. Each
// request is answered once, and in the end each id can be used.
func TestManyAtOnceWhileTheCoordinatorMoves(t *testing.T) {
	e := newEnv(t, Config{Patience: 5 * time.Millisecond, AbortInterval: time.Hour, ExpiryInterval: time.Hour})
	defer e.c.Close()
	var ids atomic.Int64
	// One that many may call at once.
	e.c.cfg.NextProducerID = func(ctx context.Context) (int64, error) { return 1000 + ids.Add(1), nil }
	e.c.OnLeader(0, 1)

	const workers, calls = 12, 400
	var asked, answered atomic.Int64
	// once gives a function that may be called once only.
	once := func(what string) func() {
		asked.Add(1)
		var called atomic.Bool
		return func() {
			if called.Swap(true) {
				t.Errorf("%s was answered twice", what)
				return
			}
			answered.Add(1)
		}
	}
	var known sync.Map // id to the producer that last got it
	work := func(seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		for range calls {
			id := fmt.Sprint("id-", r.IntN(4))
			p := coordinator.Producer{ID: 1000 + int64(r.IntN(9)), Epoch: int16(r.IntN(5) - 1)}
			if k, ok := known.Load(id); ok && r.IntN(8) > 0 {
				p = k.(coordinator.Producer)
			}
			version := int16(4 + r.IntN(2))
			switch r.IntN(10) {
			case 0, 1:
				req := initReq(id)
				if r.IntN(3) == 0 {
					req.ProducerID, req.ProducerEpoch = p.ID, p.Epoch
				}
				done := once("InitProducerId")
				e.c.InitProducerID(req, func(resp *kmsg.InitProducerIDResponse) {
					if resp.ErrorCode == 0 {
						known.Store(id, coordinator.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch})
					}
					done()
				})
			case 2, 3, 4, 5:
				done := once("AddPartitionsToTxn")
				e.c.AddPartitions(version, addReq(id, p, r.IntN(3) == 0, int32(r.IntN(3))), func(kmsg.AddPartitionsToTxnResponseTransaction) { done() })
			case 6, 7, 8:
				done := once("EndTxn")
				e.c.EndTxn(endReq(version, id, p, r.IntN(2) == 0), func(resp *kmsg.EndTxnResponse) {
					if resp.ErrorCode == 0 && version >= 5 {
						known.Store(id, coordinator.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch})
					}
					done()
				})
			default:
				_ = e.c.Describe(id)
				_ = e.c.List(kmsg.NewPtrListTransactionsRequest())
			}
			if r.IntN(4) == 0 {
				time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
			}
		}
	}
	stop := make(chan struct{})
	var moving, working sync.WaitGroup
	epoch := int32(1)
	moving.Go(func() {
		r := rand.New(rand.NewPCG(7, 7))
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(r.IntN(20)) * time.Millisecond):
			}
			switch r.IntN(4) {
			case 0, 1:
				epoch++
				e.c.OnResign(0, epoch)
				epoch++
				e.c.OnLeader(0, epoch)
			case 2:
				e.c.abortTimedOut(time.Now().Add(time.Hour))
			default:
				e.c.expireIDs(time.Now().Add(30 * 24 * time.Hour))
			}
		}
	})
	for i := range uint64(workers) {
		working.Go(func() { work(i) })
	}
	working.Wait()
	close(stop)
	moving.Wait()
	within := func(what string, cond func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not within a minute: %s; %d of %d requests are answered", what, answered.Load(), asked.Load())
			}
		}
	}
	within("all answered", func() bool { return answered.Load() == asked.Load() })
	for i := range 4 {
		id := fmt.Sprint("id-", i)
		within(id+" can be used", func() bool {
			f := make(chan int16, 1)
			e.c.InitProducerID(initReq(id), func(resp *kmsg.InitProducerIDResponse) { f <- resp.ErrorCode })
			code := <-f
			if err := kerr.ErrorForCode(code); err != nil && !kerr.IsRetriable(err) && err != kerr.ConcurrentTransactions {
				t.Fatalf("%s: %v", id, err)
			}
			return code == 0
		})
		if d := e.c.Describe(id); d.State != "Empty" {
			t.Errorf("%s is %s after InitProducerId", id, d.State)
		}
	}
	if queued, unknown := e.c.MarkerStats(); queued > 0 || unknown > 0 {
		t.Errorf("%d and %d markers are left", queued, unknown)
	}
}
