package commitlog

import "errors"

// AbortedTransaction is what a reader of committed data is told of a transaction
// that was aborted: the records of the producer from FirstOffset on, up to its next
// abort marker, are to be left out.
type AbortedTransaction struct {
	ProducerID  int64
	FirstOffset int64
}

// ReadCommitted is Read for a reader of committed data, with the transactions that
// were aborted and have records between from and the end of the slice; nil if there
// are none. upTo must not be above the last stable offset.
func (l *Log) ReadCommitted(from int64, maxBytes int, upTo int64, minOneBatch bool) (Slice, []AbortedTransaction, error) {
	for {
		s, err := l.Read(from, maxBytes, upTo, minOneBatch)
		if err != nil || s.Len == 0 || from > l.lastAbort.Load() {
			return s, nil, err
		}
		aborted, err := l.AbortedTransactions(from, s.LastOffset+1)
		// The list must belong to these very bytes: had the segment been cut or replaced
		// since, the transactions of its old data might be gone from the indexes.
		if err == nil && s.seg.has(s.ref) {
			return s, aborted, nil
		}
		s.Close()
		if err != nil {
			return emptySlice, nil, err
		}
	}
}

// AbortedTransactions lists the aborted transactions that have records in [from,
// upTo), in the order of their markers; nil if there are none. It looks at the index
// of the segment that holds from and at those of later ones, until one shows that no
// more can come. upTo must not be above the last stable offset.
// OFFSET_OUT_OF_RANGE if from lies before what is left of the log.
func (l *Log) AbortedTransactions(from, upTo int64) ([]AbortedTransaction, error) {
	if from > l.lastAbort.Load() {
		return nil, nil
	}
	for {
		found, err := l.collectAborted(from, upTo)
		if errors.Is(err, errGone) {
			if l.closed.Load() {
				return nil, ErrClosed
			}
			continue
		}
		if err != nil || len(found) == 0 {
			return nil, err
		}
		out := make([]AbortedTransaction, len(found))
		for i := range found {
			out[i] = AbortedTransaction{ProducerID: found[i].producerID, FirstOffset: found[i].first}
		}
		return out, nil
	}
}

func (l *Log) collectAborted(from, upTo int64) (found []abortedTxn, err error) {
	segs := l.segments()
	if from < segs[0].base {
		return nil, outOfRange(from, l.start.Load(), l.end.Load())
	}
	for _, s := range segs[find(segs, from):] {
		var complete bool
		if found, complete, err = s.collectAborted(found, from, upTo); err != nil || complete {
			return found, err
		}
	}
	return found, nil
}

func (s *segment) collectAborted(dst []abortedTxn, from, upTo int64) ([]abortedTxn, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.file == nil {
		return nil, false, errGone
	}
	return s.txns.collect(dst, from, upTo)
}

// aborted adds an entry to the transaction index.
func (s *segment) aborted(t abortedTxn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.txns.append(t)
}

// has tells whether the segment still reads from that file.
func (s *segment) has(f *fileRef) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.file == f
}
