package meter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"penstock/tenants/usage"
)

// Bounds of publishing.
const (
	publishTimeout = 30 * time.Second
	retryFirst     = 100 * time.Millisecond
	retryMax       = 10 * time.Second
)

// outgoing is an encoded record on its way and what it says.
type outgoing struct {
	key, value []byte
	counters   []uint32
	values     []values
}

func (m *Meter) run(ctx context.Context) {
	defer close(m.done)
	if !m.publishEarlier(ctx) {
		return
	}
	t := time.NewTicker(m.cfg.Interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		m.collect(false)
		if !m.retry(ctx, "usage", m.flush) {
			return
		}
	}
}

// publishEarlier publishes the final records of earlier boots, oldest first,
// however long it takes; false when ctx is done.
func (m *Meter) publishEarlier(ctx context.Context) bool {
	for {
		var epochs []int64
		if !m.retry(ctx, "list of earlier boots", func(context.Context) (err error) { epochs, err = m.finals(); return err }) {
			return false
		}
		if len(epochs) == 0 {
			return true
		}
		if !m.retry(ctx, "final usage of an earlier boot", func(ctx context.Context) error { return m.publishFile(ctx, epochs[0]) }) {
			return false
		}
	}
}

func (m *Meter) publishFile(ctx context.Context, epoch int64) error {
	path := filepath.Join(m.cfg.Dir, finalPrefix+strconv.FormatInt(epoch, 10))
	data, err := readFile(path, maxFinal)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		r, err := usage.Decode(line)
		if err != nil {
			m.log.Error("a final usage record is unusable; its file is put aside", "file", path, "err", err)
			return os.Rename(path, path+".unusable")
		}
		if err := m.send(ctx, r.Key(), line); err != nil {
			return err
		}
	}
	return os.Remove(path)
}

// collect turns what has changed since the last success into records. While
// records are on their way it does nothing: sequence numbers keep their order,
// and a record that is sent again is the same.
func (m *Meter) collect(final bool) {
	if len(m.outbox) > 0 {
		return
	}
	type change struct {
		counter uint32
		v       values
		name    string
	}
	var changes []change
	m.mu.Lock()
	for i := range m.published {
		if c := uint32(i); c/2 < uint32(len(m.names)) {
			if v := m.l.values(c); v != m.published[i] {
				changes = append(changes, change{c, v, m.l.name(c / 2)})
			}
		}
	}
	direct, merged := m.direct, m.merged
	m.direct, m.merged = 0, 0
	m.mu.Unlock()
	if direct+merged > 0 {
		m.log.Warn("many batches wait to be committed; the usage journal is short of room", "countedAtAppend", direct, "merged", merged)
	}
	for first := final; first || len(changes) > 0; first = false {
		n := min(len(changes), usage.MaxEntries)
		o := outgoing{}
		r := usage.Record{Cluster: m.cfg.Cluster, Broker: m.cfg.Broker, BootEpoch: m.epoch, Seq: m.l.seq() + 1, At: m.cfg.Now(), Final: final && n == len(changes)}
		for _, c := range changes[:n] {
			r.Entries = append(r.Entries, usageEntry(c.name, int(c.counter%2), c.v))
			o.counters, o.values = append(o.counters, c.counter), append(o.values, c.v)
		}
		changes = changes[n:]
		b, err := r.Encode()
		if err != nil {
			m.log.Error("usage cannot be written", "err", err)
			continue
		}
		// The number is taken before the record can be seen anywhere.
		m.l.put(offSeq, r.Seq)
		o.key, o.value = r.Key(), b
		m.outbox = append(m.outbox, o)
	}
	if len(m.outbox) > 0 {
		if err := unix.Msync(m.l.data, unix.MS_SYNC); err != nil {
			m.log.Warn("writing the usage counters to disk failed", "err", err)
		}
	}
}

// flush publishes the records on their way.
func (m *Meter) flush(ctx context.Context) error {
	for len(m.outbox) > 0 {
		o := m.outbox[0]
		if err := m.send(ctx, o.key, o.value); err != nil {
			return err
		}
		for i, c := range o.counters {
			m.published[c] = o.values[i]
		}
		m.outbox = m.outbox[1:]
	}
	return nil
}

func (m *Meter) send(ctx context.Context, key, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return m.cfg.Publish(ctx, key, value)
}

// retry calls f until it succeeds; false when ctx is done first.
func (m *Meter) retry(ctx context.Context, what string, f func(context.Context) error) bool {
	pause := retryFirst
	for {
		err := f(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		m.log.Warn("publishing usage failed; trying again", "what", what, "err", err)
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-t.C:
		}
		pause = min(2*pause, retryMax)
	}
}

// ErrLeft says that the usage topic could not be reached in time: the last usage
// stays in the file and the next boot publishes it. Nothing is lost.
var ErrLeft = errors.New("meter: the last usage is left to the next boot")

// publishFinal sends what is on its way and the final record, once.
func (m *Meter) publishFinal(ctx context.Context) error {
	if epochs, err := m.finals(); err != nil || len(epochs) > 0 {
		// Earlier boots come first; all is left to the next boot.
		return err
	}
	err := m.flush(ctx)
	if err == nil {
		m.collect(true)
		err = m.flush(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLeft, err)
	}
	m.l.put(offFinal, 1)
	return nil
}
