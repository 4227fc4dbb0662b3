package txnverify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

type (
	askRequest  = kmsg.AddPartitionsToTxnRequest
	askResponse = kmsg.AddPartitionsToTxnResponse
)

// world is a verifier over one real log a partition, and coordinators that answer by say.
type world struct {
	t    *testing.T
	v    *Verifier
	logs map[protocol.TopicPartition]*commitlog.Log

	mu     sync.Mutex
	asked  []*askRequest
	gate   chan struct{} // each question waits for one, if set
	say    func(broker int32, txnID string, tp protocol.TopicPartition, n int) int16
	fails  func(n int) error
	where  func(txnID string) (int32, error)
	off    bool
	notLed map[protocol.TopicPartition]bool
}

func tp(n int32) protocol.TopicPartition { return protocol.TopicPartition{Topic: "t", Partition: n} }

func run(t *testing.T, f func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, logs: map[protocol.TopicPartition]*commitlog.Log{}, notLed: map[protocol.TopicPartition]bool{}}
		fsys := vfs.NewMem()
		for n := range int32(4) {
			l, err := commitlog.Open(fsys, fmt.Sprintf("t-%d", n), commitlog.Config{VerifyTransactions: true}, commitlog.OpenOptions{CleanShutdown: true})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			w.logs[tp(n)] = l
		}
		w.v = New(Config{
			Enabled: func() bool { return !w.off },
			Coordinator: func(id string) (int32, error) {
				if w.where != nil {
					return w.where(id)
				}
				return 1, nil
			},
			Ask: w.ask,
			Begin: func(tp protocol.TopicPartition, r commitlog.VerificationRequest) (commitlog.Guard, error) {
				if w.notLed[tp] {
					return 0, kerr.NotLeaderForPartition
				}
				return w.logs[tp].BeginVerification(r)
			},
			End: func(tp protocol.TopicPartition, id int64, epoch int16, g commitlog.Guard, verified bool) {
				if verified {
					w.logs[tp].Verified(id, epoch, g)
				} else {
					w.logs[tp].Refused(id, epoch, g)
				}
			},
			Timeout: 30 * time.Second, RetryBackoff: 20 * time.Millisecond, RetryFor: 100 * time.Millisecond,
		})
		defer w.v.Close()
		f(w)
	})
}

func (w *world) ask(ctx context.Context, broker int32, req *askRequest) (*askResponse, error) {
	w.mu.Lock()
	w.asked = append(w.asked, req)
	n := len(w.asked)
	gate := w.gate
	w.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if w.fails != nil {
		if err := w.fails(n); err != nil {
			return nil, err
		}
	}
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	for _, x := range req.Transactions {
		rx := kmsg.NewAddPartitionsToTxnResponseTransaction()
		rx.TransactionalID = x.TransactionalID
		for _, t := range x.Topics {
			rt := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				rp.Partition = p
				if w.say != nil {
					rp.ErrorCode = w.say(broker, x.TransactionalID, protocol.TopicPartition{Topic: t.Topic, Partition: p}, n)
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			rx.Topics = append(rx.Topics, rt)
		}
		resp.Transactions = append(resp.Transactions, rx)
	}
	return resp, nil
}

func (w *world) questions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked)
}

// verify starts one and gives where its answer comes; a second answer is an error.
func (w *world) verify(txnID string, pid int64, add bool, tps ...protocol.TopicPartition) chan []error {
	ch, once := make(chan []error, 1), sync.Once{}
	answered := false
	w.v.Verify(txnID, coordinator.Producer{ID: pid, Epoch: 0}, tps, add, func(errs []error) {
		if answered {
			w.t.Error("answered twice")
		}
		once.Do(func() { answered = true; ch <- slices.Clone(errs) })
	})
	return ch
}

func (w *world) want(what string, ch chan []error, want ...error) {
	w.t.Helper()
	got := <-ch
	if len(got) != len(want) {
		w.t.Fatalf("%s: %v", what, got)
	}
	for i := range want {
		if want[i] == nil && got[i] != nil || want[i] != nil && !errors.Is(got[i], want[i]) {
			w.t.Errorf("%s, partition %d: got %v, want %v", what, i, got[i], want[i])
		}
	}
}

// append has the log judge the first batch of the producer's transaction.
func (w *world) append(n int32, pid int64) error {
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = pid, 0, 0, true
	b, err := recordbatch.Build(o, []recordbatch.Record{{Value: []byte("v")}})
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = w.logs[tp(n)].AppendLeader(b, 0)
	return err
}

func (w *world) marker(n int32, pid int64) {
	b, err := commitlog.Marker{ProducerID: pid}.Batch()
	if err == nil {
		_, err = w.logs[tp(n)].AppendLeader(b, 0)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestWhatTheCoordinatorHasMayBeAppended(t *testing.T) {
	run(t, func(w *world) {
		w.say = func(_ int32, _ string, p protocol.TopicPartition, _ int) int16 {
			return map[int32]int16{1: kerr.TransactionAbortable.Code, 2: kerr.ProducerFenced.Code}[p.Partition]
		}
		w.notLed[tp(3)] = true
		w.want("first", w.verify("x", 7, false, tp(0), tp(1), tp(2), tp(3)), nil, kerr.TransactionAbortable, kerr.InvalidProducerEpoch, kerr.NotLeaderForPartition)
		if err := w.append(0, 7); err != nil {
			t.Error(err)
		}
		if err := w.append(1, 7); !errors.Is(err, kerr.InvalidTxnState) {
			t.Error(err)
		}
		req := w.asked[0]
		if len(req.Transactions) != 1 || req.Version < 4 || !req.Transactions[0].VerifyOnly || req.Transactions[0].ProducerID != 7 ||
			!slices.Equal(req.Transactions[0].Topics[0].Partitions, []int32{0, 1, 2}) {
			t.Errorf("asked %+v", req)
		}
		w.want("open", w.verify("x", 7, false, tp(0)), nil)
		if w.questions() != 1 {
			t.Error("asked about an open transaction")
		}
	})
}

func TestAnswerThatAMarkerOvertookCountsForNothing(t *testing.T) {
	run(t, func(w *world) {
		w.gate = make(chan struct{})
		ch := w.verify("x", 7, false, tp(0))
		synctest.Wait()
		w.marker(0, 7)
		w.gate <- struct{}{}
		w.want("the coordinator said yes", ch, nil)
		if err := w.append(0, 7); !errors.Is(err, kerr.InvalidTxnState) {
			t.Errorf("a batch after its transaction's marker: %v", err)
		}
	})
}

// While one request is under way to a broker the next ones gather.
// Whoever has looked already whether there is something to ask need not do it twice; a
// question that is put again begins anew.
func TestVerificationThatWasBegunIsNotBegunTwice(t *testing.T) {
	run(t, func(w *world) {
		begun := 0
		begin := w.v.cfg.Begin
		w.v.cfg.Begin = func(tp protocol.TopicPartition, r commitlog.VerificationRequest) (commitlog.Guard, error) {
			begun++
			return begin(tp, r)
		}
		w.say = func(_ int32, _ string, _ protocol.TopicPartition, n int) int16 {
			if n == 1 {
				return kerr.ConcurrentTransactions.Code
			}
			return 0
		}
		guard, err := begin(tp(0), commitlog.VerificationRequest{ProducerID: 7, Sequence: recordbatch.NoSequence, Adds: true})
		if err != nil || guard == 0 {
			t.Fatal(guard, err)
		}
		done := make(chan []error, 1)
		w.v.VerifyBatches("x", coordinator.Producer{ID: 7}, []Batch{{TP: tp(0), Sequence: recordbatch.NoSequence, Guard: guard}}, true, func(errs []error) { done <- errs })
		w.want("begun by the caller", done, nil)
		if n := w.questions(); begun != n-1 {
			t.Errorf("begun %d times for %d questions", begun, n)
		}
		if err := w.append(0, 7); err != nil {
			t.Error(err)
		}
	})
}

func TestQuestionsForOneBrokerGoTogether(t *testing.T) {
	run(t, func(w *world) {
		w.gate = make(chan struct{})
		w.where = func(id string) (int32, error) {
			if id == "elsewhere" {
				return 2, nil
			}
			return 1, nil
		}
		var chs []chan []error
		chs = append(chs, w.verify("a", 1, false, tp(0)))
		synctest.Wait()
		for i, id := range []string{"b", "c", "b", "d"} {
			chs = append(chs, w.verify(id, int64(2+i), i == 3, tp(0)))
		}
		chs = append(chs, w.verify("elsewhere", 9, false, tp(0)))
		synctest.Wait()
		if w.questions() != 2 {
			t.Fatalf("%d requests under way, want one a broker", w.questions())
		}
		close(w.gate)
		for i, ch := range chs {
			w.want(fmt.Sprint("question ", i), ch, nil)
		}
		var sent [][]string
		for _, r := range w.asked {
			var ids []string
			for _, x := range r.Transactions {
				ids = append(ids, x.TransactionalID)
				if x.VerifyOnly == (x.TransactionalID == "d") {
					t.Errorf("%s: verify only is %v", x.TransactionalID, x.VerifyOnly)
				}
			}
			sent = append(sent, ids)
		}
		for _, want := range [][]string{{"a"}, {"b", "c", "d"}, {"b"}, {"elsewhere"}} {
			if !slices.ContainsFunc(sent, func(ids []string) bool { return slices.Equal(ids, want) }) {
				t.Errorf("no request for %v among %v", want, sent)
			}
		}
	})
}

// The partition may be added as soon as the transaction before is over: its marker, which ends
// what was verified until then, comes between two attempts.
func TestAddingWaitsForTheTransactionBefore(t *testing.T) {
	run(t, func(w *world) {
		w.say = func(_ int32, _ string, _ protocol.TopicPartition, n int) int16 {
			if n == 2 {
				w.marker(0, 7)
			}
			if n < 4 {
				return kerr.ConcurrentTransactions.Code
			}
			return 0
		}
		w.want("in the end", w.verify("x", 7, true, tp(0)), nil)
		if err := w.append(0, 7); err != nil {
			t.Error(err)
		}
		w.say = func(int32, string, protocol.TopicPartition, int) int16 { return kerr.ConcurrentTransactions.Code }
		before := w.questions()
		began := time.Now()
		w.want("for ever", w.verify("y", 8, true, tp(0)), kerr.ConcurrentTransactions)
		if n := w.questions() - before; n < 2 || time.Since(began) > time.Second {
			t.Errorf("%d attempts in %v", n, time.Since(began))
		}
		before = w.questions()
		w.want("looking only", w.verify("z", 9, false, tp(0)), kerr.ConcurrentTransactions)
		if w.questions() != before+1 {
			t.Error("a verification was tried again")
		}
	})
}

func TestCoordinatorOutOfReach(t *testing.T) {
	run(t, func(w *world) {
		w.fails = func(int) error { return errors.New("connection refused") }
		w.want("no answer", w.verify("x", 7, false, tp(0)), kerr.NetworkException)
		w.fails = nil
		w.want("again", w.verify("x", 7, false, tp(0)), nil)
		w.where = func(string) (int32, error) { return -1, kerr.CoordinatorNotAvailable }
		w.want("nobody coordinates", w.verify("x", 8, false, tp(0)), kerr.CoordinatorNotAvailable)
		w.where = nil
		w.gate = make(chan struct{}) // a broker that is stopped
		began := time.Now()
		w.want("silence", w.verify("x", 8, false, tp(0)), kerr.NetworkException)
		if d := time.Since(began); d != 30*time.Second {
			t.Errorf("given up after %v", d)
		}
		if got := w.v.Stats(); got != (Stats{Requests: 3, Partitions: 3, Failures: 3, Time: 30 * time.Second, Longest: 30 * time.Second}) {
			t.Errorf("%+v", got)
		}
		if got := w.v.Stats().Longest; got != 0 {
			t.Errorf("longest since just now: %v", got)
		}
	})
}

func TestOldCoordinator(t *testing.T) {
	run(t, func(w *world) {
		w.fails = func(int) error { return ErrOldCoordinator }
		w.want("nothing can be learnt", w.verify("x", 7, false, tp(0)), nil)
		if err := w.append(0, 7); err != nil {
			t.Error(err)
		}
		w.want("it cannot add", w.verify("x", 8, true, tp(0)), kerr.InvalidTxnState)
	})
}

func TestWithoutVerificationOnlyAddingIsAsked(t *testing.T) {
	run(t, func(w *world) {
		w.off = true
		w.want("verify", w.verify("x", 7, false, tp(0)), nil)
		if w.questions() != 0 {
			t.Error("asked, though it is switched off")
		}
		w.want("add", w.verify("x", 7, true, tp(0)), nil)
		if w.questions() != 1 {
			t.Error("not added")
		}
	})
}

func TestCloseAnswersAll(t *testing.T) {
	run(t, func(w *world) {
		w.gate = make(chan struct{})
		a, b := w.verify("x", 7, false, tp(0)), w.verify("x", 8, false, tp(0))
		synctest.Wait()
		w.v.Close()
		w.want("under way", a, kerr.NetworkException)
		w.want("behind it", b, kerr.NetworkException)
		w.want("after it", w.verify("x", 9, true, tp(0)), kerr.NetworkException)
	})
}
