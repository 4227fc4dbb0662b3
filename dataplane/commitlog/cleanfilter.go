package commitlog

import (
	"bytes"
	"fmt"
	"slices"

	"penstock/dataplane/recordbatch"
)

// batch decides what stays of one batch, and writes it.
//
// What is left of a batch without records is gone with one exception: a header stays
// of an active producer's last batch, since its sequence is needed to know a retry, and
// of the last batch of the new segment: by that header the log's offsets stay without a
// hole between segments, so that a start after a crash can tell a compacted segment from
// one that has lost its end.
func (c *clean) batch(w *cleanWriter, b recordbatch.Batch, lastOfGroup bool) error {
	discard := false // nothing of it has to stay for its records' sake
	if !c.o.HorizonsOnly {
		var err error
		if b.IsControl() {
			discard, err = c.txns.marker(b)
		} else {
			discard = c.txns.data(b)
		}
		if err != nil {
			return err
		}
	} else if b.IsControl() {
		// It got that when its transaction was empty, see settleMarker.
		discard = b.HasDeleteHorizon() && !slices.Contains(w.held, b.BaseOffset())
	}
	c.stats.BytesRead += int64(len(b))
	if b.BaseOffset() >= c.end {
		c.stats.RecordsRead += int64(b.Count())
		c.stats.RecordsKept += int64(b.Count())
		if err := c.keeps(w, b, b); err != nil {
			return err
		}
		return w.copy(b)
	}
	over := b.HasDeleteHorizon() && b.FirstTimestamp() <= c.nowMs
	o := recordbatch.FilterOptions{Horizon: -1}
	switch {
	case b.IsControl():
		o.Keep = func(*recordbatch.Entry) bool { return !discard || !over }
		o.Marker = discard
	case discard:
		o.Keep = func(*recordbatch.Entry) bool { return false }
	case c.o.HorizonsOnly:
		o.Keep = func(e *recordbatch.Entry) bool { return !e.Tombstone || !over || e.Offset >= c.end }
	default:
		o.Keep = func(e *recordbatch.Entry) bool { return c.stays(e, over) }
	}
	if !c.o.HorizonsOnly && b.LastOffset() < c.end {
		o.Horizon = c.nowMs + max(0, c.cfg.DeleteRetention.Milliseconds())
	}
	start := len(w.buf)
	out, f, err := recordbatch.Filter(w.buf, b, o)
	if err != nil {
		return fmt.Errorf("cleaning %s: %w", w.seg.path(logSuffix), err)
	}
	c.stats.RecordsRead += int64(f.Records)
	c.stats.RecordsKept += int64(f.Kept)
	c.stats.Tombstones += int64(f.Tombstones)
	switch {
	case f.Kept == 0 && (lastOfGroup || c.lastOfProducer(b)):
		out = recordbatch.AppendEmpty(out, b)
	case f.Kept == 0:
		w.changed = true
		c.stats.EmptiedTxns = c.stats.EmptiedTxns || c.o.HorizonsOnly && b.IsTransactional() && !b.IsControl()
		return nil
	case !w.mayGrow(len(out) - start - len(b)):
		// The segment would get larger than a segment can be: a later clean may do it.
		out = append(out[:start], b...)
	}
	w.buf = out
	written := recordbatch.Batch(out[start:])
	if b.IsControl() && !discard {
		settleMarker(written)
	}
	if err := c.keeps(w, b, written); err != nil {
		return err
	}
	w.changed = w.changed || !bytes.Equal(written, b)
	if (f.Tombstones > 0 || b.IsControl()) && written.HasDeleteHorizon() && written.LastOffset() < c.end {
		w.seg.due = min(w.seg.due, written.FirstTimestamp())
	}
	return w.took(written)
}

// keeps notes that something of batch b stays, and what that is.
func (c *clean) keeps(w *cleanWriter, b, written recordbatch.Batch) error {
	switch {
	case !c.o.HorizonsOnly && !b.IsControl():
		c.txns.kept(b)
	case c.o.HorizonsOnly && b.IsControl() && written.Count() > 0:
		return w.markerStays(b.BaseOffset())
	}
	return nil
}

// settleMarker takes its delete horizon from a marker whose transaction still has data
// here. A follower gets such a marker if its leader had removed the data that the
// follower already had; the marker may go only after that has gone here, too. So what
// is clean has horizons on markers of empty transactions only, and those that let go
// what is due need not look for the data, which may lie in any segment before.
func settleMarker(b recordbatch.Batch) {
	if b.HasDeleteHorizon() {
		b.ClearDeleteHorizon()
	}
}

// stays is the rule for one record of committed data; over tells that its batch's
// delete horizon has passed.
func (c *clean) stays(e *recordbatch.Entry, over bool) bool {
	if e.Offset >= c.end {
		return true
	}
	if !e.HasKey {
		c.stats.WithoutKey++
		return false
	}
	if newest, ok := c.o.Map.get(e.Key); ok && e.Offset < newest {
		return false
	}
	return !e.Tombstone || !over
}

func (c *clean) lastOfProducer(b recordbatch.Batch) bool {
	if !b.HasProducerID() {
		return false
	}
	p, ok := c.last[b.ProducerID()]
	if !ok {
		return false
	}
	if p.offset >= 0 {
		return b.LastOffset() == p.offset
	}
	return b.IsControl() && b.ProducerEpoch() == p.epoch
}

// lastOfEach is what a clean must leave of every producer. REQUIRES: Log.mu held.
func (ps *producers) lastOfEach() map[int64]lastOfProducer {
	out := make(map[int64]lastOfProducer, len(ps.byID))
	for id, p := range ps.byID {
		l := lastOfProducer{offset: -1, epoch: p.epoch}
		if p.n > 0 {
			l.offset = p.batches[p.n-1].lastOffset
		}
		out[id] = l
	}
	return out
}
