package commitlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"penstock/dataplane/recordbatch"
)

// ErrCleanAborted means that the log was truncated, closed, paused or lost segments
// while it was cleaned. Nothing is lost by it; the clean may be tried again.
var ErrCleanAborted = errors.New("clean was aborted")

// CleanOptions are what a clean needs beside the log's settings.
type CleanOptions struct {
	// FirstDirty is the offset up to which the log has been cleaned before.
	FirstDirty int64
	// UpTo bounds the clean: nothing at or above it is put into the map or removed. It
	// must not be above the high watermark or the last stable offset.
	UpTo int64
	Now  time.Time
	Map  *OffsetMap
	// Buffer is the size of the read buffer and of the write buffer, bytes; 0 = 256 KiB.
	// A batch that is larger gets a buffer of its size for as long as it needs it.
	Buffer int
	// Throttle is called with every number of bytes read or written and may wait; its
	// error ends the clean. Nil: no throttle.
	Throttle func(ctx context.Context, bytes int) error
	// HorizonsOnly removes the tombstones and markers whose delete horizon is over, and
	// reads and writes only the segments that have such.
	HorizonsOnly bool
}

// CleanStats is what a clean did.
type CleanStats struct {
	FirstDirty, End           int64 // the log is clean below End now
	MapRecords                int64 // records put into the map
	MapKeys                   int
	MapFull                   bool // the map was full before all that may be cleaned was in it
	SegmentsRead, SegmentsNow int
	RecordsRead, RecordsKept  int64
	BytesRead, BytesWritten   int64
	WithoutKey                int64 // records dropped because they have no key
	Tombstones                int64 // kept
	// EmptiedTxns: the last records of transactions may have gone with HorizonsOnly, and
	// only a whole clean, with nothing dirty perhaps, can tell which markers wait now.
	EmptiedTxns    bool
	MapUtilization float64
	Elapsed        time.Duration
}

// Clean compacts the log's segments below UpTo, the active one never: of each key the
// newest record stays, tombstones and transaction markers until their delete horizon
// (KIP-534). Offsets never change. Readers and appends go on meanwhile; a truncation
// ends it with ErrCleanAborted. An error of the storage is KAFKA_STORAGE_ERROR and may
// leave the log unusable; after any other error the log is as it was, or partly clean.
func (l *Log) Clean(ctx context.Context, o CleanOptions) (CleanStats, error) {
	ctx, end, err := l.beginClean(ctx)
	if err != nil {
		return CleanStats{}, err
	}
	defer end()
	began := l.now()
	c, err := l.newClean(ctx, o)
	if err != nil {
		return CleanStats{}, err
	}
	// What replaces an older record must be on disk before that goes.
	if err = l.flushTo(c.o.UpTo); err == nil {
		err = c.run()
	}
	if errors.Is(err, errGone) {
		err = fmt.Errorf("%w: a segment went away", ErrCleanAborted)
	}
	c.stats.Elapsed = l.now().Sub(began)
	return c.stats, err
}

// clean is one run of Clean.
type clean struct {
	l     *Log
	ctx   context.Context
	o     CleanOptions
	cfg   Config
	cuts  int // truncations before it began
	nowMs int64
	end   int64 // records at and above it stay as they are
	txns  *cleanTxns
	last  map[int64]lastOfProducer
	stats CleanStats
}

// lastOfProducer is what must be kept of an active producer: its last batch, or its
// last marker if it has no batch.
type lastOfProducer struct {
	offset int64 // last offset of the last batch, -1 if none
	epoch  int16
}

func (l *Log) newClean(ctx context.Context, o CleanOptions) (*clean, error) {
	if o.Buffer <= 0 {
		o.Buffer = 256 << 10
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return nil, err
	}
	o.UpTo = min(o.UpTo, l.active().base)
	o.FirstDirty = min(max(o.FirstDirty, 0), o.UpTo)
	c := &clean{l: l, ctx: ctx, o: o, cfg: l.cfg, cuts: l.cuts, nowMs: o.Now.UnixMilli(), end: o.FirstDirty}
	c.stats.FirstDirty, c.stats.End = o.FirstDirty, o.FirstDirty
	return c, nil
}

func (c *clean) run() error {
	if !c.o.HorizonsOnly {
		if err := c.fillMap(); err != nil {
			return err
		}
	}
	c.txns = newCleanTxns()
	for _, g := range c.groups() {
		if err := c.group(g); err != nil {
			return err
		}
	}
	c.stats.End = c.end
	return nil
}

// fillMap puts the keys of the dirty part into the map, aborted data left out, and
// sets how far the map knows the log.
func (c *clean) fillMap() error {
	c.o.Map.reset(c.o.UpTo - c.o.FirstDirty)
	defer func() {
		c.stats.MapKeys, c.stats.MapUtilization = c.o.Map.keys, c.o.Map.Utilization()
	}()
	c.txns = newCleanTxns()
	aborted, err := c.l.collectAborted(max(c.o.FirstDirty, c.l.segments()[0].base), c.o.UpTo)
	if err != nil {
		return err
	}
	c.txns.add(aborted)
	segs := c.l.segments()
	for _, s := range segs[find(segs, c.o.FirstDirty):] {
		if s.base >= c.o.UpTo {
			break
		}
		whole, err := c.mapSegment(s)
		if err != nil || !whole {
			return err
		}
	}
	c.end = c.o.UpTo
	return nil
}

// mapSegment tells whether it put all of the segment into the map.
func (c *clean) mapSegment(s *segment) (whole bool, err error) {
	r, err := c.read(s, c.o.FirstDirty)
	if err != nil {
		return false, err
	}
	defer r.close()
	for {
		b, err := r.next()
		if err != nil || b == nil {
			return err == nil, err
		}
		if b.LastOffset() < c.o.FirstDirty {
			continue
		}
		if b.LastOffset() >= c.o.UpTo {
			return false, nil
		}
		if b.IsControl() {
			if _, err := c.txns.marker(b); err != nil {
				return false, err
			}
		} else if !c.txns.data(b) {
			if err := c.mapBatch(b); errors.Is(err, errMapFull) {
				c.stats.MapFull = true
				return false, nil
			} else if err != nil {
				return false, err
			}
		}
		c.end = b.NextOffset()
	}
}

func (c *clean) mapBatch(b recordbatch.Batch) error {
	return recordbatch.Entries(b, func(e *recordbatch.Entry) error {
		if e.Offset < c.o.FirstDirty {
			return nil
		}
		if e.HasKey {
			if err := c.o.Map.put(e.Key, e.Offset); err != nil {
				return err
			}
		}
		c.stats.MapRecords++
		c.end = e.Offset + 1
		return nil
	})
}

// groups joins neighbouring segments that fit one together, by bytes, index entries
// and offsets, so that small remainders do not stay segments for ever.
func (c *clean) groups() (out [][]*segment) {
	var size, entries, times int64
	var group []*segment
	maxEntries := func(entry int) int64 { return int64(c.cfg.SegmentIndexBytes) / int64(entry) }
	for _, s := range c.l.segments() {
		s.mu.RLock()
		n, e, t, next := s.size, int64(s.offsets.count()), int64(s.times.count()), s.next
		due := s.due <= c.nowMs && s.due != dueUnknown
		s.mu.RUnlock()
		if s.base >= c.end {
			break
		}
		if c.o.HorizonsOnly && !due {
			if len(group) > 0 {
				out, group = append(out, group), nil
			}
			continue
		}
		fits := len(group) > 0 && size+n <= int64(c.cfg.SegmentBytes) && entries+e <= maxEntries(offsetEntrySize) && times+t+1 < maxEntries(timeEntrySize) &&
			(n == 0 || next-1-group[0].base <= math.MaxInt32)
		if !fits {
			if len(group) > 0 {
				out = append(out, group)
			}
			group, size, entries, times = nil, 0, 0, 0
		}
		group = append(group, s)
		size, entries, times = size+n, entries+e, times+t+1
	}
	if len(group) > 0 {
		out = append(out, group)
	}
	return out
}

// group cleans segments into one and puts that in their place.
func (c *clean) group(segs []*segment) (err error) {
	c.l.mu.Lock()
	c.last = c.l.producers.lastOfEach()
	c.l.mu.Unlock()
	w, err := c.newWriter(segs)
	if err != nil {
		return err
	}
	done := false
	defer func() { // a panic, too, must not leave files open
		if !done {
			err = errors.Join(err, w.discard())
		}
	}()
	for i, s := range segs {
		if err := c.segment(w, s, i == len(segs)-1); err != nil {
			return err
		}
	}
	if err := w.finish(); err != nil {
		return err
	}
	c.stats.SegmentsRead += len(segs)
	c.stats.SegmentsNow++
	if len(segs) == 1 && !w.changed && w.txns.count == segs[0].aborts() {
		segs[0].setDue(w.seg.due)
		return nil
	}
	done = true
	return c.swap(w, segs)
}

// follow makes the aborted transactions of a segment known before it is read.
func (c *clean) follow(s *segment, next int64) error {
	aborted, err := c.l.collectAborted(s.base, next)
	if err == nil {
		c.txns.add(aborted)
	}
	return err
}

// segment cleans one segment into w; last tells that it is the group's last.
func (c *clean) segment(w *cleanWriter, s *segment, last bool) error {
	r, err := c.read(s, s.base)
	if err != nil {
		return err
	}
	defer r.close()
	if c.o.HorizonsOnly {
		w.old, w.held, err = s.markersOf()
	} else if err = c.follow(s, r.v.next); err == nil {
		c.txns.retained = w.addTxn
	}
	if err != nil {
		return err
	}
	for {
		b, err := r.next()
		if err != nil || b == nil {
			return err
		}
		if err := c.batch(w, b, last && r.atEnd()); err != nil {
			return err
		}
	}
}
