package commitlog

import (
	"container/heap"

	"penstock/dataplane/recordbatch"
)

// cleanTxns follows the transactions while a clean walks the log from its first
// segment on, to know which data was aborted and which markers have lost all of the
// data that they end. It spans the segments of one clean.
type cleanTxns struct {
	coming    txnHeap                // aborted transactions that begin further on
	aborted   map[int64]*aborting    // by producer id, between first record and marker
	committed map[int64]bool         // producers of which data since their last marker stays
	retained  func(abortedTxn) error // takes the entries that the new index needs; may be nil
}

type aborting struct {
	txn  abortedTxn
	kept bool // something of its data stays
}

func newCleanTxns() *cleanTxns {
	return &cleanTxns{aborted: map[int64]*aborting{}, committed: map[int64]bool{}}
}

// add makes aborted transactions known before the batches that they cover are read;
// one that spans several segments may be added with each.
func (t *cleanTxns) add(txns []abortedTxn) {
	for _, x := range txns {
		heap.Push(&t.coming, x)
	}
}

// data tells whether a data batch belongs to an aborted transaction.
func (t *cleanTxns) data(b recordbatch.Batch) bool {
	t.begin(b.LastOffset())
	if !b.IsTransactional() {
		return false
	}
	if a := t.aborted[b.ProducerID()]; a != nil && b.BaseOffset() <= a.txn.last {
		return true
	}
	delete(t.aborted, b.ProducerID()) // over, and its marker was not there
	return false
}

// kept says that something of a data batch stays, its header at least.
func (t *cleanTxns) kept(b recordbatch.Batch) {
	if !b.IsTransactional() {
		return
	}
	if a := t.aborted[b.ProducerID()]; a != nil {
		a.kept = true
	} else {
		t.committed[b.ProducerID()] = true
	}
}

// marker takes over a control batch; empty tells that nothing stays of the transaction
// that it ends. Kafka finds that out with the next clean only; but groups of segments
// take their places in order, so that no crash brings the data back without the marker.
func (t *cleanTxns) marker(b recordbatch.Batch) (empty bool, err error) {
	t.begin(b.LastOffset())
	kind, ok, err := markerKind(b)
	if err != nil || !ok {
		return err == nil && b.Count() == 0, err
	}
	id := b.ProducerID()
	if kind == markerCommit {
		empty = !t.committed[id]
		delete(t.committed, id)
		return empty, nil
	}
	a, stray := t.aborted[id], t.committed[id]
	delete(t.aborted, id)
	delete(t.committed, id)
	if a == nil || !a.kept {
		return !stray, nil // data that no index entry tells of must keep its marker all the more
	}
	if t.retained != nil {
		return false, t.retained(a.txn)
	}
	return false, nil
}

// begin opens the transactions whose first record is at or below offset.
func (t *cleanTxns) begin(offset int64) {
	for len(t.coming) > 0 && t.coming[0].first <= offset {
		x := heap.Pop(&t.coming).(abortedTxn)
		if a := t.aborted[x.producerID]; a == nil || a.txn.last < x.first {
			t.aborted[x.producerID] = &aborting{txn: x}
		}
	}
}

const (
	markerAbort  = 0
	markerCommit = 1
)

// markerKind reads what a control batch says: its only record's key is a version and
// the kind. ok is false for other control records and for an emptied batch.
func markerKind(b recordbatch.Batch) (kind uint16, ok bool, err error) {
	err = recordbatch.Entries(b, func(e *recordbatch.Entry) error {
		if len(e.Key) >= 4 {
			kind = be.Uint16(e.Key[2:])
			ok = kind <= markerCommit
		}
		return nil
	})
	return kind, ok, err
}

// txnHeap orders aborted transactions by their first offset.
type txnHeap []abortedTxn

func (h txnHeap) Len() int           { return len(h) }
func (h txnHeap) Less(i, j int) bool { return h[i].first < h[j].first }
func (h txnHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *txnHeap) Push(x any)        { *h = append(*h, x.(abortedTxn)) }
func (h *txnHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
