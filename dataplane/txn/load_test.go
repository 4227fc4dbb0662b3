package txn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
)

// What was decided before a move is brought to its end by the next coordinator, under
// its own epoch.
func TestPreparedTransactionsGoOnAfterAMove(t *testing.T) {
	for _, commit := range []bool{true, false} {
		for _, version := range []int16{4, 5} {
			run(t, Config{}, func(e *env) {
				p := e.producer("a")
				wantCode(t, e.add(version, "a", p, 0, 1), nil)
				e.peers.set(func(p *memPeers) {
					p.answer = func(_ int32, s sent) error {
						if s.tp.Partition == 1 {
							return kerr.NotEnoughReplicas
						}
						return nil
					}
				})
				wantCode(t, e.end(version, "a", p, commit).ErrorCode, nil)
				time.Sleep(200 * time.Millisecond)
				e.wantState("a", map[bool]string{true: "PrepareCommit", false: "PrepareAbort"}[commit])
				e.peers.set(func(p *memPeers) { p.answer, p.got = nil, nil })
				e.move(9)
				e.pass()
				e.wantState("a", map[bool]string{true: "CompleteCommit", false: "CompleteAbort"}[commit])
				got := e.peers.markers()
				if len(got) != 2 { // it cannot know that one had come
					t.Fatalf("markers %+v", got)
				}
				for _, s := range got {
					if s.committed != commit || s.coordinator != 9 {
						t.Errorf("marker %+v", s)
					}
				}
			})
		}
	}
}

// What a new leader finds above the high watermark may be lost yet: nothing is said or
// done of it before it is committed.
func TestNothingIsServedBeforeItIsCommitted(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		wantCode(t, e.add(3, "a", p, 0), nil)
		e.log.set(func(l *memLog) { l.hold = true })
		f := e.endAsync(endReq(4, "a", p, true))
		f.mustWait()
		var held []heldAppend
		e.log.set(func(l *memLog) { held, l.held, l.hold = l.held, nil, false })
		e.c.Close() // the leader fails; its record has come to the next one's log
		held[0].done(kerr.NotLeaderForPartition)
		wantCode(t, f.poll().ErrorCode, kerr.NotCoordinator)
		e.move(2)
		time.Sleep(time.Second)
		if d := e.c.Describe("a"); d.ErrorCode != kerr.CoordinatorLoadInProgress.Code {
			t.Fatalf("%+v is served", d)
		}
		if got := e.peers.markers(); len(got) != 0 {
			t.Fatalf("markers %+v", got)
		}
		e.log.set(func(l *memLog) { l.committed[0] = held[0].upTo })
		e.pass()
		e.wantState("a", "CompleteCommit")
		if got := e.peers.markers(); len(got) != 1 || !got[0].committed {
			t.Fatalf("markers %+v", got)
		}
	})
}

// A lost partition takes its transactions along, and the markers that were under way.
func TestLostPartitionSendsNoMarkers(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		wantCode(t, e.add(3, "a", p, 0), nil)
		e.peers.set(func(p *memPeers) { p.err = kerr.RequestTimedOut })
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
		e.pass()
		e.c.OnResign(0, 2)
		e.peers.set(func(p *memPeers) { p.err = nil })
		time.Sleep(time.Second)
		if got := e.peers.markers(); len(got) != 0 {
			t.Fatalf("markers %+v of a partition that is not led", got)
		}
		wantCode(t, e.add(3, "a", p, 0), kerr.NotCoordinator)
		if queued, unknown := e.c.MarkerStats(); queued+unknown != 0 {
			t.Fatalf("%d markers wait, %d unknown", queued, unknown)
		}
	})
}

// Kafka's records of both versions are taken over; what cannot be read is left out.
func TestKafkasRecordsAreTakenOver(t *testing.T) {
	run(t, Config{}, func(e *env) {
		e.c.Close()
		e.log.set(func(l *memLog) {
			for i, version := range []int16{0, 1} {
				v := kmsg.NewTxnMetadataValue()
				v.Version, v.ProducerID, v.ProducerEpoch, v.TimeoutMillis, v.State = version, int64(40+i), 4, 60_000, kmsg.TransactionState(stateOngoing)
				v.LastUpdateTimestamp, v.StartTimestamp = time.Now().UnixMilli(), time.Now().UnixMilli()
				v.Topics = []kmsg.TxnMetadataValueTopic{{Topic: "t", Partitions: []int32{0, 2}}}
				l.parts[0] = append(l.parts[0], coordinator.Record{Key: recordKey([]string{"v0", "v1"}[i]), Value: v.AppendTo(nil)})
			}
			l.parts[0] = append(l.parts[0], coordinator.Record{Key: recordKey("bad"), Value: []byte{0, 0, 1}}, coordinator.Record{Key: []byte{0, 9}, Value: []byte("foreign")})
			l.committed[0] = len(l.parts[0])
		})
		e.move(3)
		for i, id := range []string{"v0", "v1"} {
			p := coordinator.Producer{ID: int64(40 + i), Epoch: 4}
			wantCode(t, e.add(3, id, p, 1), nil)
			wantCode(t, e.end(4, id, p, true).ErrorCode, nil)
			e.pass()
			e.wantState(id, "CompleteCommit")
		}
		if n := len(e.peers.markers()); n != 6 {
			t.Fatalf("%d markers, want 6", n)
		}
		wantCode(t, e.c.Describe("bad").ErrorCode, kerr.TransactionalIDNotFound)
	})
}

// While the cluster's transaction.version is 0 a Kafka 3.9 can take over.
func TestRecordVersionGoesByTheCluster(t *testing.T) {
	for version, want := range map[int16]byte{0: 0, 1: 1, 2: 1} {
		run(t, Config{}, func(e *env) {
			e.version = version
			p := e.producer("a")
			wantCode(t, e.add(3, "a", p, 0), nil)
			wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
			e.pass()
			e.log.set(func(l *memLog) {
				for _, r := range l.parts[0] {
					if r.Value[0] != 0 || r.Value[1] != want {
						t.Errorf("transaction.version %d: value of version %d", version, r.Value[1])
					}
				}
			})
		})
	}
}

func TestDescribeAndList(t *testing.T) {
	run(t, Config{}, func(e *env) {
		a, b := e.producer("a"), e.producer("b")
		wantCode(t, e.add(3, "a", a, 1, 0), nil)
		time.Sleep(time.Minute - time.Second)
		d := e.c.Describe("a")
		if d.State != "Ongoing" || d.ProducerID != a.ID || d.TimeoutMillis != 60_000 || len(d.Topics) != 1 || len(d.Topics[0].Partitions) != 2 ||
			time.Now().UnixMilli()-d.StartTimestamp < 58_000 {
			t.Errorf("%+v", d)
		}
		wantCode(t, e.c.Describe("").ErrorCode, kerr.InvalidRequest)
		list := func(change func(*kmsg.ListTransactionsRequest)) (ids string) {
			r := kmsg.NewPtrListTransactionsRequest()
			r.Version = 2
			change(r)
			resp := e.c.List(r)
			for _, s := range resp.UnknownStateFilters {
				ids += "?" + s
			}
			for _, s := range resp.TransactionStates {
				ids += s.TransactionalID
			}
			wantCode(t, resp.ErrorCode, nil)
			return ids
		}
		f := func(want string, change func(*kmsg.ListTransactionsRequest)) {
			t.Helper()
			if got := list(change); got != want {
				t.Errorf("listed %q, want %q", got, want)
			}
		}
		f("ab", func(*kmsg.ListTransactionsRequest) {})
		f("a", func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing"} })
		f("?ongoing", func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"ongoing"} })
		f("b", func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{b.ID} })
		f("ab", func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 30_000 }) // b has no start, as in Kafka
		f("b", func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 70_000 })
		f("a", func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = new("a|bb") })
		f("ab", func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = new("") })
		f("", func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = new("x") })
		e.producer("bb")
		f("bbb", func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = new("b|bb") })
		r := kmsg.NewPtrListTransactionsRequest()
		r.Version, r.TransactionalIDPattern = 2, new("a)|(b")
		wantCode(t, e.c.List(r).ErrorCode, kerr.InvalidRegularExpression)
	})
}

// A newer epoch of the same leadership is the one that markers have from then on.
func TestMarkersHaveTheNewestCoordinatorEpoch(t *testing.T) {
	run(t, Config{}, func(e *env) {
		p := e.producer("a")
		wantCode(t, e.add(3, "a", p, 0), nil)
		e.peers.set(func(p *memPeers) {
			p.answer = func(_ int32, s sent) error {
				if s.coordinator < 6 {
					return kerr.TransactionCoordinatorFenced
				}
				return nil
			}
		})
		wantCode(t, e.end(4, "a", p, true).ErrorCode, nil)
		time.Sleep(time.Second)
		e.wantState("a", "PrepareCommit")
		e.c.OnLeader(0, 6)
		synctest.Wait()
		time.Sleep(time.Second)
		e.wantState("a", "CompleteCommit")
	})
}
