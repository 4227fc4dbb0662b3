package partition

import (
	"sync"
	"time"

	"penstock/dataplane/commitlog"
)

// progressEvery is how often a long start says how far it is.
const progressEvery = 5 * time.Second

// recovering counts what opening the logs of all folders has done.
type recovering struct {
	began time.Time

	mu       sync.Mutex
	logs     int // opened, of all
	all      int
	scanned  int // logs that had to be read through
	sum      commitlog.Recovery
	finished chan struct{}
	wg       sync.WaitGroup
}

// watch says how far the start is until done is called.
func (r *recovering) watch(m *Manager, all int) {
	r.began, r.all, r.finished = time.Now(), all, make(chan struct{})
	r.wg.Go(func() {
		t := time.NewTicker(progressEvery)
		defer t.Stop()
		for {
			select {
			case <-r.finished:
				return
			case <-t.C:
				r.mu.Lock()
				m.logger.Info("opening logs", "opened", r.logs, "of", r.all, "recovered", r.scanned, "scanned_bytes", r.sum.Scanned, "took", time.Since(r.began).Round(time.Second))
				r.mu.Unlock()
			}
		}
	})
}

func (r *recovering) opened(rec commitlog.Recovery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs++
	if rec.Segments == 0 {
		return
	}
	r.scanned++
	r.sum.Segments += rec.Segments
	r.sum.Scanned += rec.Scanned
	r.sum.Cut += rec.Cut
	r.sum.Dropped += rec.Dropped
}

func (r *recovering) done(m *Manager) {
	close(r.finished)
	r.wg.Wait()
	if r.scanned > 0 {
		m.logger.Info("recovered logs", "logs", r.scanned, "of", r.all, "segments", r.sum.Segments, "scanned_bytes", r.sum.Scanned,
			"cut_bytes", r.sum.Cut, "dropped_segments", r.sum.Dropped, "took", time.Since(r.began).Round(time.Millisecond))
	}
}
