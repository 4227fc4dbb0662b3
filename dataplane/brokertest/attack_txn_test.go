package brokertest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// txnInit asks for a producer id and an epoch.
func txnInit(w *wire, id string, timeoutMs int32) *kmsg.InitProducerIDResponse {
	w.t.Helper()
	req := at(kmsg.NewPtrInitProducerIDRequest(), 4)
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, timeoutMs, -1, -1
	return ask[*kmsg.InitProducerIDResponse](w, req)
}

// txnAdd adds partitions of one topic, as producers do, and gives the codes.
func txnAdd(w *wire, id string, pid int64, epoch int16, topic string, partitions ...int32) []int16 {
	w.t.Helper()
	req := at(kmsg.NewPtrAddPartitionsToTxnRequest(), 3)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, pid, epoch
	rt := kmsg.NewAddPartitionsToTxnRequestTopic()
	rt.Topic, rt.Partitions = topic, partitions
	req.Topics = append(req.Topics, rt)
	var codes []int16
	for _, t := range ask[*kmsg.AddPartitionsToTxnResponse](w, req).Topics {
		for _, p := range t.Partitions {
			codes = append(codes, p.ErrorCode)
		}
	}
	return codes
}

func txnEnd(w *wire, version int16, id string, pid int64, epoch int16, commit bool) int16 {
	w.t.Helper()
	req := at(kmsg.NewPtrEndTxnRequest(), version)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, pid, epoch, commit
	return ask[*kmsg.EndTxnResponse](w, req).ErrorCode
}

// txnProduce writes one record in a transaction.
func txnProduce(w *wire, id string, pid int64, epoch int16, topic string, p int32) int16 {
	w.t.Helper()
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = pid, epoch, 0, true
	req := produceTo(-1, map[string]map[int32][]byte{topic: {p: build(w.t, o, records("x"))}})
	req.TransactionID = &id
	return ask[*kmsg.ProduceResponse](w, req).Topics[0].Partitions[0].ErrorCode
}

// txnCoordinated waits until the broker coordinates transactions. The question for the
// coordinator makes the topic.
func txnCoordinated(w *wire) {
	w.t.Helper()
	find := at(kmsg.NewPtrFindCoordinatorRequest(), 2)
	find.CoordinatorKey, find.CoordinatorType = "probe", 1
	ask[*kmsg.FindCoordinatorResponse](w, find)
	Await(w.t, 30*time.Second, "a transaction coordinator", func() error {
		return kerr.ErrorForCode(txnInit(w, "probe", 60_000).ErrorCode)
	})
}

// TestAttackTransactionsOfStrangers sends what no honest producer sends. Each is answered with its error,
// and a transaction that is open meanwhile is none the worse.
func TestAttackTransactionsOfStrangers(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Settings: []string{"transaction.state.log.num.partitions=3", "transaction.max.timeout.ms=100000"}})
	c.CreateTopic("t", 4, 1)
	n := c.Brokers[0]
	w := dialBroker(t, n.Addr)
	txnCoordinated(w)
	honest := txnInit(w, "honest", 60_000)
	wantCode(t, "InitProducerId", honest.ErrorCode, nil)
	pid, epoch := honest.ProducerID, honest.ProducerEpoch
	for _, code := range txnAdd(w, "honest", pid, epoch, "t", 0, 1) {
		wantCode(t, "AddPartitionsToTxn", code, nil)
	}
	wantCode(t, "Produce", txnProduce(w, "honest", pid, epoch, "t", 0), nil)

	add := func(what string, want *kerr.Error, codes []int16) {
		t.Helper()
		if len(codes) == 0 {
			t.Errorf("%s: no answer", what)
		}
		for _, code := range codes {
			wantCode(t, what, code, want)
		}
	}
	many := func(n int) []int32 {
		var all []int32
		for i := range n {
			all = append(all, int32(i%4))
		}
		return all
	}
	add("adding under an unknown id", kerr.InvalidProducerIDMapping, txnAdd(w, "nobody", pid, epoch, "t", 0))
	add("adding with another's producer id", kerr.InvalidProducerIDMapping, txnAdd(w, "honest", pid+1, epoch, "t", 0))
	add("adding with an old epoch", kerr.ProducerFenced, txnAdd(w, "honest", pid, epoch-1, "t", 0))
	add("adding with an epoch to come", kerr.ProducerFenced, txnAdd(w, "honest", pid, epoch+1, "t", 0))
	add("adding with epoch -1", kerr.ProducerFenced, txnAdd(w, "honest", pid, -1, "t", 0))
	add("adding partitions that are not", kerr.UnknownTopicOrPartition, txnAdd(w, "honest", pid, epoch, "t", 4, -1, 1<<31-1))
	add("adding a topic that is not", kerr.UnknownTopicOrPartition, txnAdd(w, "honest", pid, epoch, "u", 0))
	add("adding an internal topic", kerr.TopicAuthorizationFailed, txnAdd(w, "honest", pid, epoch, "__transaction_state", 0))
	add("adding partitions a hundred thousand times", nil, txnAdd(w, "honest", pid, epoch, "t", many(100_000)...))
	add("adding under the empty id", kerr.InvalidRequest, txnAdd(w, "", pid, epoch, "t", 0))

	for _, timeout := range []int32{0, -1, -1 << 31, 100_001, 1<<31 - 1} {
		wantCode(t, fmt.Sprint("InitProducerId with timeout ", timeout), txnInit(w, "x", timeout).ErrorCode, kerr.InvalidTransactionTimeout)
	}
	wantCode(t, "InitProducerId with the empty id", txnInit(w, "", 1000).ErrorCode, kerr.InvalidRequest)
	for _, version := range []int16{3, 5} {
		what := fmt.Sprintf("EndTxn v%d ", version)
		wantCode(t, what+"of an unknown id", txnEnd(w, version, "nobody", 1, 0, true), kerr.InvalidProducerIDMapping)
		wantCode(t, what+"of nothing", txnEnd(w, version, "", 1, 0, true), kerr.InvalidRequest)
		wantCode(t, what+"with another's producer id", txnEnd(w, version, "honest", pid+1, epoch, false), kerr.InvalidProducerIDMapping)
		wantCode(t, what+"with an epoch to come", txnEnd(w, version, "honest", pid, epoch+1, false), kerr.ProducerFenced)
		idle := txnInit(w, fmt.Sprint("idle-", version), 60_000)
		wantCode(t, what+"with nothing begun", txnEnd(w, version, fmt.Sprint("idle-", version), idle.ProducerID, idle.ProducerEpoch, true), kerr.InvalidTxnState)
	}
	wantCode(t, "Produce under an unknown id", txnProduce(w, "nobody", 999_999, 0, "t", 2), kerr.InvalidProducerIDMapping)
	wantCode(t, "Produce to a partition that was not added", txnProduce(w, "probe", txnInit(w, "probe", 60_000).ProducerID, 1, "t", 3), kerr.InvalidTxnState)

	// The longest id that there is, and those that a record could not hold.
	long := strings.Repeat("i", 32767)
	made := txnInit(w, long, 60_000)
	wantCode(t, "InitProducerId with the longest id", made.ErrorCode, nil)
	wantCode(t, "EndTxn with the longest id", txnEnd(w, 3, long, made.ProducerID, made.ProducerEpoch, false), kerr.InvalidTxnState)
	for _, size := range []int{32768, 1<<16 + len("honest")} {
		id := ("honest" + strings.Repeat("i", size))[:size]
		stranger := dialBroker(t, n.Addr)
		req := at(kmsg.NewPtrInitProducerIDRequest(), 4)
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, -1, -1
		stranger.send(req)
		stranger.closed()
	}
	n.Kill()
	n.Start()
	w = dialBroker(t, n.Addr)
	txnCoordinated(w)
	wantCode(t, "EndTxn of who was honest", txnEnd(w, 3, "honest", pid, epoch, true), nil)
	awaitStable(t, w, "t", 4)
}

// awaitStable waits until nothing keeps readers of committed data from any partition's end.
func awaitStable(t *testing.T, w *wire, topic string, partitions int32) {
	t.Helper()
	Await(t, time.Minute, "the stable offset at the end", func() error {
		for p := range partitions {
			var ends [2]int64
			for level := range int8(2) {
				req := offsetsOf(6, topic, p, -1)
				req.IsolationLevel = level
				a := ask[*kmsg.ListOffsetsResponse](w, req).Topics[0].Partitions[0]
				if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
					return err
				}
				ends[level] = a.Offset
			}
			if ends[0] != ends[1] {
				return fmt.Errorf("partition %d is stable up to %d of %d", p, ends[1], ends[0])
			}
		}
		return nil
	})
}

// TestAttackThousandsOfOpenTransactions leaves transactions open by the thousand, kills the
// coordinator, and takes all of them over: they are aborted, and memory is what they
// are worth.
func TestAttackThousandsOfOpenTransactions(t *testing.T) {
	const clients, each, partitions = 8, 250, 8
	c := Start(t, Options{Settings: []string{"transaction.state.log.num.partitions=5"}})
	c.CreateTopic("t", partitions, 1)
	n := c.Brokers[0]
	txnCoordinated(dialBroker(t, n.Addr))
	before := residentKB(t, n)
	everyone := func(f func(w *wire, id string, i int)) {
		var wg sync.WaitGroup
		for k := range clients {
			wg.Go(func() {
				w := dialBroker(t, n.Addr)
				_ = w.SetDeadline(time.Now().Add(5 * time.Minute))
				for i := range each {
					f(w, fmt.Sprintf("id-%d-%d", k, i), i)
				}
			})
		}
		wg.Wait()
	}
	everyone(func(w *wire, id string, i int) {
		p := txnInit(w, id, 600_000)
		if p.ErrorCode != 0 {
			t.Errorf("%s: %v", id, kerr.ErrorForCode(p.ErrorCode))
			return
		}
		part := int32(i % partitions)
		for _, code := range txnAdd(w, id, p.ProducerID, p.ProducerEpoch, "t", part) {
			wantCode(t, id, code, nil)
		}
		wantCode(t, id, txnProduce(w, id, p.ProducerID, p.ProducerEpoch, "t", part), nil)
	})
	grown := residentKB(t, n) - before
	t.Logf("%d open transactions take %.1f KB each", clients*each, float64(grown)/(clients*each))
	if grown > 20*clients*each {
		t.Errorf("%d open transactions take %d KB", clients*each, grown)
	}
	n.Kill()
	n.Start()
	txnCoordinated(dialBroker(t, n.Addr))
	everyone(func(w *wire, id string, _ int) {
		Await(t, time.Minute, id+" taken over", func() error { return kerr.ErrorForCode(txnInit(w, id, 600_000).ErrorCode) })
	})
	w := dialBroker(t, n.Addr)
	awaitStable(t, w, "t", partitions)
	list := at(kmsg.NewPtrListTransactionsRequest(), 1)
	list.StateFilters, list.DurationFilterMillis = []string{"Ongoing", "PrepareCommit", "PrepareAbort"}, -1
	if left := ask[*kmsg.ListTransactionsResponse](w, list).TransactionStates; len(left) > 0 {
		t.Errorf("%d transactions are left, %+v", len(left), left[0])
	}
}
