package txn

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

func TestCommitBringsMarkersAndCompletes(t *testing.T) {
	for _, v := range []struct {
		name        string
		add, end    int16
		epochBump   int16
		transaction int8
	}{{"first protocol", 3, 4, 0, 0}, {"second protocol", 5, 5, 1, 2}} {
		t.Run(v.name, func(t *testing.T) {
			run(t, Config{}, func(e *env) {
				p := e.producer("a")
				wantCode(t, e.add(v.add, "a", p, 0, 1), nil)
				wantCode(t, e.add(v.add, "a", p, 2), nil)
				e.wantState("a", "Ongoing")
				gate := make(chan struct{})
				e.peers.set(func(p *memPeers) { p.gate = gate })
				r := e.end(v.end, "a", p, true)
				wantCode(t, r.ErrorCode, nil)
				if v.end == 5 && (r.ProducerID != p.ID || r.ProducerEpoch != p.Epoch+1) {
					t.Fatalf("goes on as %d/%d, want %d/%d", r.ProducerID, r.ProducerEpoch, p.ID, p.Epoch+1)
				}
				e.wantState("a", "PrepareCommit")
				if got := e.peers.markers(); len(got) != 0 {
					t.Fatalf("markers %v came before they were let", got)
				}
				close(gate)
				e.pass()
				e.wantState("a", "CompleteCommit")
				got := e.peers.markers()
				if len(got) != 3 {
					t.Fatalf("%d markers, want 3: %v", len(got), got)
				}
				for _, s := range got {
					want := sent{s.tp, coordinator.Producer{ID: p.ID, Epoch: p.Epoch + v.epochBump}, true, 1, v.transaction}
					if s != want {
						t.Errorf("marker %+v, want %+v", s, want)
					}
				}
				if m := e.log.stored(t, "a"); m.state != stateCompleteCommit || len(m.parts) != 0 || m.epoch != p.Epoch+v.epochBump {
					t.Fatalf("the log has %+v", m)
				}
			})
		})
	}
}

// No marker may tell of a decision that could still be lost.
func TestNoMarkerBeforeTheDecisionIsCommitted(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		wantCode(t, e.add(3, "a", p, 0), nil)
		e.log.set(func(l *memLog) { l.hold = true })
		f := e.endAsync(endReq(4, "a", p, true))
		e.pass()
		f.mustWait()
		if got := e.peers.markers(); len(got) != 0 {
			t.Fatalf("markers %v of a decision that is not committed", got)
		}
		e.log.release(kerr.RequestTimedOut)
		wantCode(t, f.wait().ErrorCode, kerr.CoordinatorNotAvailable)
		e.pass()
		if got := e.peers.markers(); len(got) != 0 {
			t.Fatalf("markers %v of a decision that was not stored", got)
		}
		e.wantState("a", "Ongoing")
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
	})
}

func TestEndTxnByTheFirstProtocol(t *testing.T) {
	run(t, Config{}, func(e *env) {
		wantCode(t, e.end(4, "", coordinator.Producer{}, true).ErrorCode, kerr.InvalidRequest)
		wantCode(t, e.end(4, "a", coordinator.Producer{}, true).ErrorCode, kerr.InvalidProducerIDMapping)
		p := e.producer("a")
		wantCode(t, e.end(4, "a", p, true).ErrorCode, kerr.InvalidTxnState) // nothing began
		wantCode(t, e.end(4, "a", p, false).ErrorCode, kerr.InvalidTxnState)
		wantCode(t, e.end(4, "a", coordinator.Producer{ID: 7, Epoch: p.Epoch}, true).ErrorCode, kerr.InvalidProducerIDMapping)
		wantCode(t, e.end(4, "a", coordinator.Producer{ID: p.ID, Epoch: p.Epoch + 1}, true).ErrorCode, kerr.ProducerFenced)
		wantCode(t, e.end(2, "a", coordinator.Producer{ID: p.ID, Epoch: p.Epoch + 1}, true).ErrorCode, kerr.ProducerFenced)
		wantCode(t, e.end(1, "a", coordinator.Producer{ID: p.ID, Epoch: p.Epoch + 1}, true).ErrorCode, kerr.InvalidProducerEpoch)

		wantCode(t, e.add(3, "a", p, 0), nil)
		gate := make(chan struct{})
		e.peers.set(func(p *memPeers) { p.gate = gate })
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
		wantCode(t, e.end(4, "a", p, true).ErrorCode, kerr.ConcurrentTransactions)
		wantCode(t, e.end(4, "a", p, false).ErrorCode, kerr.ConcurrentTransactions)
		wantCode(t, e.add(3, "a", p, 0), kerr.ConcurrentTransactions)
		wantCode(t, e.init(initReq("a")).ErrorCode, kerr.ConcurrentTransactions)
		close(gate)
		e.pass()
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil) // again
		wantCode(t, e.end(4, "a", p, false).ErrorCode, kerr.InvalidTxnState)

		wantCode(t, e.add(3, "a", p, 0), nil)
		wantCode(t, e.end(4, "a", p, false).ErrorCode, nil)
		e.pass()
		e.wantState("a", "CompleteAbort")
		wantCode(t, e.end(4, "a", p, false).ErrorCode, nil)
		wantCode(t, e.end(4, "a", p, true).ErrorCode, kerr.InvalidTxnState)
	})
}

// The table of KIP-890: what an end by the second protocol gets when no transaction is
// open, by its epoch (of this transaction, or of the one that was ended before).
func TestEndTxnByTheSecondProtocol(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		back := coordinator.Producer{ID: p.ID, Epoch: p.Epoch - 1}
		// Empty
		wantCode(t, e.end(5, "a", back, false).ErrorCode, kerr.ProducerFenced)
		wantCode(t, e.end(5, "a", back, true).ErrorCode, kerr.ProducerFenced)
		wantCode(t, e.end(5, "a", p, true).ErrorCode, kerr.InvalidTxnState)
		abort := func(from string) {
			t.Helper()
			r := e.end(5, "a", p, false)
			wantCode(t, r.ErrorCode, nil)
			if r.ProducerEpoch != p.Epoch+1 || r.ProducerID != p.ID {
				t.Fatalf("an abort in %s goes on as %d/%d, want %d/%d", from, r.ProducerID, r.ProducerEpoch, p.ID, p.Epoch+1)
			}
			p.Epoch++
			e.pass()
			e.wantState("a", "CompleteAbort")
		}
		again := func(commit bool, want error) {
			t.Helper()
			r := e.end(5, "a", coordinator.Producer{ID: p.ID, Epoch: p.Epoch - 1}, commit)
			wantCode(t, r.ErrorCode, want)
			if want == nil && (r.ProducerEpoch != p.Epoch || r.ProducerID != p.ID) {
				t.Fatalf("the same end again goes on as %d/%d, want %d/%d", r.ProducerID, r.ProducerEpoch, p.ID, p.Epoch)
			}
		}
		abort("Empty")
		// CompleteAbort
		again(false, nil)
		again(true, kerr.InvalidTxnState)
		wantCode(t, e.end(5, "a", p, true).ErrorCode, kerr.InvalidTxnState)
		abort("CompleteAbort")
		// CompleteCommit
		wantCode(t, e.add(5, "a", p, 0), nil)
		gate := make(chan struct{})
		e.peers.set(func(p *memPeers) { p.gate = gate })
		wantCode(t, e.end(5, "a", p, true).ErrorCode, nil)
		wantCode(t, e.end(5, "a", p, true).ErrorCode, kerr.ConcurrentTransactions) // the same again, markers under way
		p.Epoch++
		// The answer has given the producer this epoch, and an empty transaction is aborted as soon as it is asked for:
		// that it comes before the markers are written is no reason to fence it.
		wantCode(t, e.end(5, "a", p, false).ErrorCode, kerr.ConcurrentTransactions)
		wantCode(t, e.end(5, "a", p, true).ErrorCode, kerr.ConcurrentTransactions)
		close(gate)
		e.pass()
		again(true, nil)
		again(false, kerr.InvalidTxnState)
		wantCode(t, e.end(5, "a", p, true).ErrorCode, kerr.InvalidTxnState)
		abort("CompleteCommit")
		if n := len(e.peers.markers()); n != 1 {
			t.Fatalf("%d markers, want that of the commit", n)
		}
	})
}

// A producer that has used up its epochs goes on under a new producer id, and its last
// end can be asked for again.
func TestEndTxnByTheSecondProtocolWhenEpochsAreUsedUp(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		e.setEpoch("a", math.MaxInt16-1)
		p.Epoch = math.MaxInt16 - 1
		wantCode(t, e.add(5, "a", p, 0), nil)
		r := e.end(5, "a", p, true)
		wantCode(t, r.ErrorCode, nil)
		next := coordinator.Producer{ID: r.ProducerID, Epoch: r.ProducerEpoch}
		if next.ID == p.ID || next.Epoch != 0 {
			t.Fatalf("goes on as %+v, want a new id with epoch 0", next)
		}
		e.pass()
		got := e.peers.markers()
		if len(got) != 1 || got[0].producer != (coordinator.Producer{ID: p.ID, Epoch: math.MaxInt16}) {
			t.Fatalf("markers %+v, want one of the old id with the last epoch", got)
		}
		for range 2 {
			r = e.end(5, "a", p, true)
			wantCode(t, r.ErrorCode, nil)
			if r.ProducerID != next.ID || r.ProducerEpoch != 0 {
				t.Fatalf("the same end again goes on as %d/%d, want %+v", r.ProducerID, r.ProducerEpoch, next)
			}
			e.move(2)
		}
		wantCode(t, e.add(5, "a", next, 1), nil)
	})
}

// setEpoch makes the id's epoch one that would take long to come to.
func (e *env) setEpoch(id string, epoch int16) {
	e.t.Helper()
	synctest.Wait()
	t, err := e.c.shards.Find(id, nil)
	if err != nil || t == nil {
		e.t.Fatalf("no %s: %v", id, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epoch = epoch
}

func TestMarkersAreSentAgainUntilEachLeaderHasThem(t *testing.T) {
	for name, c := range map[string]struct {
		trouble func(*memPeers)
		mend    func(*memPeers)
	}{
		"no answer": {func(p *memPeers) { p.err = kerr.RequestTimedOut }, func(p *memPeers) { p.err = nil }},
		"too few replicas": {
			func(p *memPeers) { p.answer = func(int32, sent) error { return kerr.NotEnoughReplicas } },
			func(p *memPeers) { p.answer = nil },
		},
		"coordinator fenced": {
			func(p *memPeers) { p.answer = func(int32, sent) error { return kerr.TransactionCoordinatorFenced } },
			func(p *memPeers) { p.answer = nil },
		},
		"no leader": {
			func(p *memPeers) { p.leaders[protocol.TopicPartition{Topic: "t", Partition: 1}] = -1 },
			func(p *memPeers) { p.leaders[protocol.TopicPartition{Topic: "t", Partition: 1}] = 2 },
		},
		"nothing known yet": {func(p *memPeers) { p.empty = true }, func(p *memPeers) { p.empty = false }},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Config{}, func(e *env) {
				p := e.producer("a")
				wantCode(t, e.add(3, "a", p, 0, 1), nil)
				e.peers.set(c.trouble)
				wantCode(t, e.end(4, "a", p, false).ErrorCode, nil)
				time.Sleep(time.Second)
				e.wantState("a", "PrepareAbort")
				e.peers.set(c.mend)
				time.Sleep(time.Second)
				e.wantState("a", "CompleteAbort")
				seen := map[int32]int{}
				for _, s := range e.peers.markers() {
					if s.committed || s.producer != p {
						t.Errorf("marker %+v of an abort", s)
					}
					seen[s.tp.Partition]++
				}
				if len(seen) != 2 || seen[0] != 1 || seen[1] != 1 {
					t.Fatalf("markers by partition %v, want one each", seen)
				}
			})
		})
	}
}

func TestPartitionsOfDeletedTopicsNeedNoMarker(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		wantCode(t, e.add(3, "a", p, 0, 1), nil)
		e.peers.set(func(p *memPeers) { delete(p.leaders, protocol.TopicPartition{Topic: "t", Partition: 1}) })
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
		time.Sleep(time.Second)
		e.wantState("a", "PrepareCommit") // the broker may know less than there is
		time.Sleep(goneAfter)
		e.wantState("a", "CompleteCommit")
		if got := e.peers.markers(); len(got) != 1 {
			t.Fatalf("markers %v, want that of partition 0", got)
		}
	})
}

// A log that has seen a later epoch of the producer has nothing open of this one.
func TestMarkerThatIsRefusedForGoodIsLetGo(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		wantCode(t, e.add(3, "a", p, 0), nil)
		e.peers.set(func(p *memPeers) { p.answer = func(int32, sent) error { return kerr.InvalidProducerEpoch } })
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
		e.pass()
		e.wantState("a", "CompleteCommit")
	})
}

// One request a broker carries what has come together meanwhile.
func TestMarkersOfManyTransactionsGoTogether(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, id := range ids {
			p := e.producer(id)
			wantCode(t, e.add(3, id, p, 0), nil)
		}
		gate := make(chan struct{})
		e.peers.set(func(p *memPeers) { p.gate, p.asked = gate, 0 })
		for _, id := range ids {
			d := e.c.Describe(id)
			wantCode(t, e.end(4, id, coordinator.Producer{ID: d.ProducerID, Epoch: d.ProducerEpoch}, true).ErrorCode, nil)
		}
		close(gate)
		e.pass()
		for _, id := range ids {
			e.wantState(id, "CompleteCommit")
		}
		e.peers.set(func(p *memPeers) {
			if p.asked != 2 {
				t.Errorf("%d requests, want the first and one of all others", p.asked)
			}
		})
	})
}

// The Complete record is written until it is stored.
func TestCompletionIsStoredSoonerOrLater(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		wantCode(t, e.add(3, "a", p, 0), nil)
		gate := make(chan struct{})
		e.peers.set(func(p *memPeers) { p.gate = gate })
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
		e.log.set(func(l *memLog) { l.fail = kerr.NotEnoughReplicas })
		close(gate)
		time.Sleep(time.Second)
		e.wantState("a", "PrepareCommit")
		wantCode(t, e.add(3, "a", p, 0), kerr.ConcurrentTransactions)
		e.log.set(func(l *memLog) { l.fail = nil })
		time.Sleep(time.Second)
		e.wantState("a", "CompleteCommit")
		if n := len(e.peers.markers()); n != 1 {
			t.Fatalf("%d markers, want 1", n)
		}
	})
}

// With patience a request waits for the end of the transaction before.
func TestRequestsWaitForWhatIsPending(t *testing.T) {
	run(t, Config{Patience: 100 * time.Millisecond}, func(e *env) {
		p := e.producer("a")
		first, second := e.addAsync(3, addReq("a", p, false, 0)), e.addAsync(3, addReq("a", p, false, 1))
		wantCode(t, first.wait().Topics[0].Partitions[0].ErrorCode, nil)
		wantCode(t, second.wait().Topics[0].Partitions[0].ErrorCode, nil)
		gate := make(chan struct{})
		e.peers.set(func(p *memPeers) { p.gate = gate })
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
		f := e.addAsync(3, addReq("a", p, false, 0))
		f.mustWait()
		close(gate)
		wantCode(t, f.wait().Topics[0].Partitions[0].ErrorCode, nil)
		e.wantState("a", "Ongoing")

		gate = make(chan struct{})
		e.peers.set(func(p *memPeers) { p.gate = gate })
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
		f = e.addAsync(3, addReq("a", p, false, 0))
		time.Sleep(99 * time.Millisecond)
		f.mustWait()
		time.Sleep(2 * time.Millisecond)
		wantCode(t, f.poll().Topics[0].Partitions[0].ErrorCode, kerr.ConcurrentTransactions)

		f = e.addAsync(3, addReq("a", p, false, 0))
		f.mustWait()
		e.c.OnResign(0, 5)
		wantCode(t, f.poll().Topics[0].Partitions[0].ErrorCode, kerr.NotCoordinator)
		close(gate)
	})
}

func TestAddOffsetsAddsTheGroupsPartition(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		r := kmsg.NewPtrAddOffsetsToTxnRequest()
		r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = 3, "a", p.ID, p.Epoch, "g"
		f := newFuture[kmsg.AddOffsetsToTxnResponse](t)
		e.c.AddOffsets(r, 2, f.done)
		wantCode(t, f.wait().ErrorCode, nil)
		r.ProducerEpoch++
		for version, want := range map[int16]error{1: kerr.InvalidProducerEpoch, 2: kerr.ProducerFenced} {
			r.Version = version
			f = newFuture[kmsg.AddOffsetsToTxnResponse](t)
			e.c.AddOffsets(r, 2, f.done)
			wantCode(t, f.wait().ErrorCode, want)
		}
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
		e.pass()
		if got := e.peers.markers(); len(got) != 1 || got[0].tp != (protocol.TopicPartition{Topic: protocol.OffsetsTopic, Partition: 2}) {
			t.Fatalf("markers %v", got)
		}
	})
}
