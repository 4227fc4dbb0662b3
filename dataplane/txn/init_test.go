package txn

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/coordinator"
)

func TestInitProducerIDRefuses(t *testing.T) {
	run(t, Config{}, func(e *env) {
		wantCode(t, e.init(initReq("")).ErrorCode, kerr.InvalidRequest)
		r := initReq("a")
		for millis, want := range map[int32]error{0: kerr.InvalidTransactionTimeout, -1: kerr.InvalidTransactionTimeout, 900_001: kerr.InvalidTransactionTimeout, 900_000: nil} {
			r.TransactionTimeoutMillis = millis
			wantCode(t, e.init(r).ErrorCode, want)
		}
		r = initReq("a")
		r.ProducerID = 1
		wantCode(t, e.init(r).ErrorCode, kerr.InvalidRequest)
		r.ProducerID, r.ProducerEpoch = -1, 1
		wantCode(t, e.init(r).ErrorCode, kerr.InvalidRequest)
		e.idErr = errors.New("no ZooKeeper")
		wantCode(t, e.init(initReq("b")).ErrorCode, kerr.CoordinatorLoadInProgress)
		if d := e.c.Describe("b"); d.ErrorCode != kerr.TransactionalIDNotFound.Code {
			t.Errorf("an id that could not be made is described: %+v", d)
		}
		e.c.OnResign(0, 2)
		wantCode(t, e.init(initReq("a")).ErrorCode, kerr.NotCoordinator)
		wantCode(t, e.init(initReq("c")).ErrorCode, kerr.NotCoordinator)
	})
}

// Each new producer of an id fences those before it.
func TestInitProducerIDFences(t *testing.T) {
	run(t, Config{}, func(e *env) {
		first := e.producer("a")
		if first.Epoch != 0 {
			t.Fatalf("first epoch %d", first.Epoch)
		}
		second := e.producer("a")
		if second != (coordinator.Producer{ID: first.ID, Epoch: 1}) {
			t.Fatalf("second is %+v after %+v", second, first)
		}
		wantCode(t, e.add(3, "a", first, 0), kerr.ProducerFenced)
		wantCode(t, e.add(2, "a", first, 0), kerr.ProducerFenced)
		wantCode(t, e.add(1, "a", first, 0), kerr.InvalidProducerEpoch)
		wantCode(t, e.add(3, "a", coordinator.Producer{ID: 5}, 0), kerr.InvalidProducerIDMapping)
		wantCode(t, e.add(3, "nobody", first, 0), kerr.InvalidProducerIDMapping)
		wantCode(t, e.add(3, "", first, 0), kerr.InvalidRequest)
		if other := e.producer("b"); other.ID == first.ID || other.Epoch != 0 {
			t.Fatalf("another id has %+v", other)
		}
	})
}

// An open transaction is aborted under the next epoch before the next producer begins,
// by whichever protocol the cluster has.
func TestInitProducerIDAbortsWhatIsOpen(t *testing.T) {
	for _, version := range []int16{0, 2} {
		run(t, Config{}, func(e *env) {
			e.version = version
			p := e.producer("a")
			wantCode(t, e.add(3, "a", p, 0), nil)
			r := e.init(initReq("a"))
			wantCode(t, r.ErrorCode, kerr.ConcurrentTransactions)
			wantCode(t, e.end(4, "a", p, true).ErrorCode, kerr.ProducerFenced)
			e.pass()
			e.wantState("a", "CompleteAbort")
			got := e.peers.markers()
			if len(got) != 1 || got[0].committed || got[0].producer != (coordinator.Producer{ID: p.ID, Epoch: p.Epoch + 1}) {
				t.Fatalf("version %d: markers %+v", version, got)
			}
			if next := e.producer("a"); next != (coordinator.Producer{ID: p.ID, Epoch: p.Epoch + 2}) {
				t.Fatalf("version %d: next is %+v after %+v", version, next, p)
			}
		})
	}
}

// KIP-360: a producer that gives what it has goes on with the next epoch, may ask again
// when the answer was lost, and is fenced once another has come.
func TestInitProducerIDOnTheProducersWord(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		ask := func(version int16, p coordinator.Producer) (coordinator.Producer, int16) {
			r := initReq("a")
			r.Version, r.ProducerID, r.ProducerEpoch = version, p.ID, p.Epoch
			resp := e.init(r)
			return coordinator.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}, resp.ErrorCode
		}
		for range 2 {
			next, c := ask(5, p)
			wantCode(t, c, nil)
			if next != (coordinator.Producer{ID: p.ID, Epoch: p.Epoch + 1}) {
				t.Fatalf("%+v goes on as %+v", p, next)
			}
		}
		e.producer("a")
		_, c := ask(4, p)
		wantCode(t, c, kerr.ProducerFenced)
		_, c = ask(3, p)
		wantCode(t, c, kerr.InvalidProducerEpoch)
		_, c = ask(5, coordinator.Producer{ID: 99, Epoch: 0})
		wantCode(t, c, kerr.ProducerFenced)

		// An id that nobody knows takes the producer as it comes.
		r := initReq("new")
		r.ProducerID, r.ProducerEpoch = 77, 3
		resp := e.init(r)
		wantCode(t, resp.ErrorCode, nil)
		if resp.ProducerID == 77 || resp.ProducerEpoch != 0 {
			t.Fatalf("a new id got %d/%d", resp.ProducerID, resp.ProducerEpoch)
		}
	})
}

func TestInitProducerIDWhenEpochsAreUsedUp(t *testing.T) {
	run(t, Config{}, func(e *env) {
		for _, word := range []bool{false, true} {
			id := map[bool]string{false: "a", true: "b"}[word]
			p := e.producer(id)
			e.setEpoch(id, math.MaxInt16-1)
			p.Epoch = math.MaxInt16 - 1
			r := initReq(id)
			if word {
				r.ProducerID, r.ProducerEpoch = p.ID, p.Epoch
			}
			first := e.init(r)
			wantCode(t, first.ErrorCode, nil)
			if first.ProducerID == p.ID || first.ProducerEpoch != 0 {
				t.Fatalf("%s goes on as %d/%d", id, first.ProducerID, first.ProducerEpoch)
			}
			if word { // its answer was lost
				again := e.init(r)
				wantCode(t, again.ErrorCode, nil)
				if again.ProducerID != first.ProducerID || again.ProducerEpoch != 0 {
					t.Fatalf("asked again it goes on as %d/%d", again.ProducerID, again.ProducerEpoch)
				}
			}
		}
		// The fence takes the last epoch of all, and the next producer a new id.
		p := e.producer("c")
		e.setEpoch("c", math.MaxInt16-1)
		p.Epoch = math.MaxInt16 - 1
		wantCode(t, e.add(3, "c", p, 0), nil)
		if next := e.producer("c"); next.ID == p.ID || next.Epoch != 0 {
			t.Fatalf("goes on as %+v", next)
		}
		if got := e.peers.markers(); len(got) != 1 || got[0].producer.Epoch != math.MaxInt16 {
			t.Fatalf("markers %+v", got)
		}
	})
}

// A fence whose record was not stored holds all the same, and the next one has the same
// epoch: the record may be in the log.
func TestFenceThatWasNotStoredHolds(t *testing.T) {
	for _, version := range []int16{0, 2} {
		run(t, Config{}, func(e *env) {
			e.version = version
			p := e.producer("a")
			wantCode(t, e.add(3, "a", p, 0), nil)
			for range 3 {
				e.log.set(func(l *memLog) { l.hold = true })
				f := e.initAsync(initReq("a"))
				f.mustWait()
				e.log.release(kerr.RequestTimedOut)
				wantCode(t, f.wait().ErrorCode, kerr.CoordinatorNotAvailable)
				wantCode(t, e.add(3, "a", p, 1), kerr.ProducerFenced)
			}
			if next := e.producer("a"); next != (coordinator.Producer{ID: p.ID, Epoch: p.Epoch + 2}) {
				t.Fatalf("version %d: next is %+v after %+v", version, next, p)
			}
		})
	}
}

// An id whose first record was not stored is not remembered.
func TestIDThatWasNotStoredIsForgotten(t *testing.T) {
	run(t, Config{}, func(e *env) {
		e.log.set(func(l *memLog) { l.fail = kerr.NotEnoughReplicas })
		wantCode(t, e.init(initReq("a")).ErrorCode, kerr.CoordinatorNotAvailable)
		if d := e.c.Describe("a"); d.ErrorCode != kerr.TransactionalIDNotFound.Code {
			t.Fatalf("%+v", d)
		}
		for ours, want := range map[*kerr.Error]*kerr.Error{
			kerr.NotLeaderForPartition: kerr.NotCoordinator, kerr.KafkaStorageError: kerr.NotCoordinator, kerr.MessageTooLarge: kerr.UnknownServerError,
			kerr.UnknownTopicOrPartition: kerr.CoordinatorNotAvailable, kerr.NotEnoughReplicasAfterAppend: kerr.CoordinatorNotAvailable,
		} {
			e.log.set(func(l *memLog) { l.fail = ours })
			wantCode(t, e.init(initReq("a")).ErrorCode, want)
		}
		e.log.set(func(l *memLog) { l.fail = nil })
		if p := e.producer("a"); p.Epoch != 0 {
			t.Fatalf("%+v", p)
		}
	})
}

func TestVerifyOnly(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		wantCode(t, e.add(3, "a", p, 0, 1), nil)
		got := e.addAsync(4, addReq("a", p, true, 0, 2, 1)).wait().Topics[0].Partitions
		for i, want := range []error{nil, kerr.TransactionAbortable, nil} {
			wantCode(t, got[i].ErrorCode, want)
		}
		verify := func(id string, p coordinator.Producer) int16 {
			return e.addAsync(4, addReq(id, p, true, 0)).wait().Topics[0].Partitions[0].ErrorCode
		}
		wantCode(t, verify("nobody", p), kerr.InvalidProducerIDMapping)
		wantCode(t, verify("", p), kerr.InvalidRequest)
		wantCode(t, verify("a", coordinator.Producer{ID: 1}), kerr.InvalidProducerIDMapping)
		wantCode(t, verify("a", coordinator.Producer{ID: p.ID, Epoch: 7}), kerr.ProducerFenced)
		gate := make(chan struct{})
		e.peers.set(func(p *memPeers) { p.gate = gate })
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
		wantCode(t, verify("a", p), kerr.ConcurrentTransactions)
		close(gate)
		e.pass()
		wantCode(t, verify("a", p), kerr.TransactionAbortable)
	})
}

// Partitions that are part of the transaction already cost no record.
func TestAddingWhatIsThereWritesNothing(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		wantCode(t, e.add(3, "a", p, 0, 1), nil)
		var before, after int
		e.log.set(func(l *memLog) { before = len(l.parts[0]) })
		wantCode(t, e.add(3, "a", p, 1), nil)
		e.log.set(func(l *memLog) { after = len(l.parts[0]) })
		if before != after {
			t.Fatalf("%d records, then %d", before, after)
		}
	})
}

func TestTransactionsAreAbortedWhenTheirTimeIsUp(t *testing.T) {
	for _, version := range []int16{0, 2} {
		run(t, Config{}, func(e *env) {
			e.version = version
			p := e.producer("a")
			wantCode(t, e.add(3, "a", p, 0), nil)
			time.Sleep(50 * time.Second)
			wantCode(t, e.add(3, "a", p, 1), nil) // counts from the first partition on
			time.Sleep(9 * time.Second)
			e.wantState("a", "Ongoing")
			time.Sleep(15 * time.Second)
			e.wantState("a", "CompleteAbort")
			for _, s := range e.peers.markers() {
				if s.committed || s.producer.Epoch != p.Epoch+1 {
					t.Errorf("marker %+v", s)
				}
			}
			if n := len(e.peers.markers()); n != 2 {
				t.Errorf("%d markers, want 2", n)
			}
			wantCode(t, e.end(4, "a", p, true).ErrorCode, kerr.ProducerFenced)
		})
	}
}

func TestUnusedIDsExpire(t *testing.T) {
	run(t, Config{IDExpiration: 3 * time.Hour}, func(e *env) {
		e.producer("idle")
		p := e.producer("done")
		wantCode(t, e.add(3, "done", p, 0), nil)
		wantCode(t, e.end(4, "done", p, true).ErrorCode, nil)
		e.pass()
		long := initReq("open")
		r := e.init(long)
		wantCode(t, e.add(3, "open", coordinator.Producer{ID: r.ProducerID}, 0), nil)
		time.Sleep(150 * time.Minute)
		used := e.producer("used")
		time.Sleep(95 * time.Minute)
		for id, want := range map[string]error{"idle": kerr.TransactionalIDNotFound, "done": kerr.TransactionalIDNotFound, "used": nil} {
			wantCode(t, e.c.Describe(id).ErrorCode, want)
		}
		if m := e.log.stored(t, "idle"); m != nil {
			t.Errorf("the log has %+v", m)
		}
		e.move(2)
		wantCode(t, e.c.Describe("idle").ErrorCode, kerr.TransactionalIDNotFound)
		if again := e.producer("used"); again.ID != used.ID || again.Epoch != used.Epoch+1 {
			t.Errorf("%+v after %+v", again, used)
		}
	})
}

// An id lives on when its tombstone was not stored, and is not expired while it is used.
func TestExpiryThatFailsLeavesTheID(t *testing.T) {
	run(t, Config{IDExpiration: 90 * time.Minute}, func(e *env) {
		p := e.producer("a")
		e.log.set(func(l *memLog) { l.hold = true })
		time.Sleep(125 * time.Minute)
		wantCode(t, e.add(3, "a", p, 0), kerr.ConcurrentTransactions)
		e.log.release(kerr.NotEnoughReplicas)
		wantCode(t, e.add(3, "a", p, 0), nil)
	})
}
