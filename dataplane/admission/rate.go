package admission

import (
	"math"
	"time"
)

// rate is Kafka's sampled rate (SampledStat and Rate). Times are in ms. The
// caller locks.
type rate struct {
	samples []sample // grows to n+1
	cur     int
}

type sample struct {
	start, last int64
	sum         float64
}

// record adds v at time now to the sample that is open, opening the next one
// when that one's window is over.
func (r *rate) record(v float64, now int64, n int, window int64) {
	if len(r.samples) == 0 {
		r.samples = append(make([]sample, 0, n+1), sample{start: now, last: now})
		r.cur = 0
	}
	if now-r.samples[r.cur].start >= window {
		r.cur = (r.cur + 1) % (n + 1)
		if r.cur == len(r.samples) {
			r.samples = append(r.samples, sample{})
		}
		r.samples[r.cur] = sample{start: now, last: now}
	}
	s := &r.samples[r.cur]
	s.sum += v
	s.last = now
}

// measure returns the rate per second and W, the time in ms that it is over.
func (r *rate) measure(now int64, n int, window int64) (perSecond float64, w int64) {
	oldest := now
	var sum float64
	for i := range r.samples {
		s := &r.samples[i]
		if now-s.last >= int64(n)*window {
			*s = sample{start: now, last: now}
		}
		oldest = min(oldest, s.start)
		sum += s.sum
	}
	w = now - oldest
	if full := w / window; full < int64(n-1) {
		w += (int64(n-1) - full) * window
	}
	w = max(w, 1)
	return sum / (float64(w) / 1000), w
}

// maxThrottle is the largest delay that fits throttle_time_ms.
const maxThrottle = time.Duration(math.MaxInt32) * time.Millisecond

// throttle is the delay that brings the rate over w ms back to the bound; 0 if
// it is not above.
func throttle(perSecond, bound float64, w int64) time.Duration {
	if perSecond <= bound {
		return 0
	}
	ms := math.Floor((perSecond-bound)/bound*float64(w) + 0.5)
	if bound <= 0 || ms >= math.MaxInt32 {
		return maxThrottle
	}
	return time.Duration(ms) * time.Millisecond
}
