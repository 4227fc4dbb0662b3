package dev

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/time/rate"
)

// How the quotas are measured. Kafka's quota is an average over some ten
// seconds, so a client that was idle may burst ten seconds' worth, is then held
// back for as long, and so on: the echo of the burst comes round again and
// again. So for as long as the window remembers, the greedy clients use their
// quota at an even pace; then they ask for all they can get, and that is
// measured.
const (
	evenFor     = 12 * time.Second
	measuredFor = 10 * time.Second
	tolerance   = 0.10

	loadBatch = 16 << 10 // bytes of one record, and so about one batch
)

func (d *demo) quotas(ctx context.Context) error {
	if err := d.nameLoadTopics(ctx); err != nil {
		return err
	}
	short := map[string]string{"min.insync.replicas": "2", "retention.ms": "600000"}
	for _, t := range []string{d.loadIn, d.loadOut, pingTopic} {
		if err := d.makeTopic(ctx, t, short); err != nil {
			return err
		}
	}
	outRate := float64(*greedyQuota.BytesOutPerSecond)
	// What the consumer reads in both phases, and some more: no broker may run dry
	// while it is measured, though one may have been read faster than another.
	need := outRate * ((evenFor + measuredFor).Seconds() + 2)
	var from, to map[int32]int64
	if err := d.r.do("lay out "+size(need)+" to be read", func() (result string, err error) {
		from, to, err = d.layOut(ctx, need)
		return "", err
	}); err != nil {
		return err
	}
	var alone, beside []time.Duration
	if err := d.r.do("the bystander alone", func() (result string, err error) {
		alone, err = d.ping(ctx, 3*time.Second)
		return latencies(alone), err
	}); err != nil {
		return err
	}
	var in, out float64
	inRate := float64(*greedyQuota.BytesInPerSecond)
	err := d.r.do(fmt.Sprintf("greedy wants far more, for %.0f s (%.0f s at an even pace before)", measuredFor.Seconds(), evenFor.Seconds()), func() (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		var inErr, outErr, pingErr error
		wg.Go(func() { in, inErr = d.greedyProduce(ctx, inRate) })
		wg.Go(func() { out, outErr = d.greedyConsume(ctx, outRate, from, to) })
		wg.Go(func() { beside, pingErr = d.ping(ctx, evenFor+measuredFor) })
		wg.Wait()
		if err := errors.Join(inErr, outErr, pingErr); err != nil {
			return "", err
		}
		return fmt.Sprintf("in %s/s (%+.1f %%), out %s/s (%+.1f %%)", size(in), 100*(in/inRate-1), size(out), 100*(out/outRate-1)), nil
	})
	if err != nil {
		return err
	}
	for _, t := range []string{d.loadIn, d.loadOut} {
		if err := d.tenant.DeleteTopic(ctx, d.st.ClusterID, t); err != nil {
			return err
		}
	}
	return d.r.do("both rates within 10 %, and the bystander's latency kept", func() (string, error) {
		for _, m := range []struct {
			what          string
			measured, max float64
		}{{"in", in, inRate}, {"out", out, outRate}} {
			d.r.row("quota "+m.what, "%s/s, measured %s/s over %.0f s (%+.1f %%)", size(m.max), size(m.measured), measuredFor.Seconds(), 100*(m.measured/m.max-1))
			if off := m.measured/m.max - 1; off > tolerance || off < -tolerance {
				return "", fmt.Errorf("%s: %s/s, quota %s/s", m.what, size(m.measured), size(m.max))
			}
		}
		d.r.row("bystander's produce", "%s beside the greedy one, %s alone", latencies(beside), latencies(alone))
		// A bystander that shared the greedy one's fate would wait for seconds.
		if now, before := percentile(beside, 0.99), percentile(alone, 0.99); now > before+250*time.Millisecond {
			return "", fmt.Errorf("the bystander's p99 rose from %v to %v", before, now)
		}
		return latencies(beside), nil
	})
}

// nameLoadTopics names this run's topics and deletes those that killed runs
// left. They are new ones each time: a new topic's leaders are spread evenly over
// the brokers, those of an old one may have gathered on few, and each broker
// enforces its share of the quota alone. They are two, so that what is read has
// an end: an answer under way when the reader leaves would be metered and not
// counted.
func (d *demo) nameLoadTopics(ctx context.Context) error {
	d.loadIn, d.loadOut = loadTopic+"in-"+d.run, loadTopic+"out-"+d.run
	old, err := d.tenant.Topics(ctx, d.st.ClusterID)
	if err != nil {
		return err
	}
	for _, t := range old {
		if strings.HasPrefix(t.Name, loadTopic) {
			if err := d.tenant.DeleteTopic(ctx, d.st.ClusterID, t.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// filler makes bytes that cannot be compressed, the same for the same n.
func filler(n uint64, size int) []byte {
	b := make([]byte, 0, size+sha256.Size)
	for i := uint64(0); len(b) < size; i++ {
		var seed [16]byte
		binary.BigEndian.PutUint64(seed[:], n)
		binary.BigEndian.PutUint64(seed[8:], i)
		sum := sha256.Sum256(seed[:])
		b = append(b, sum[:]...)
	}
	return b[:size]
}

// even spreads records over all partitions, and so over all brokers, each of
// which enforces its share of the quota.
func even() kgo.Opt { return kgo.RecordPartitioner(kgo.ManualPartitioner()) }

// oneByOne sends each record in a batch of its own, as it is: small steps, so
// that a rate can be held evenly.
func oneByOne() []kgo.Opt {
	return []kgo.Opt{even(), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(loadBatch + 1<<10)}
}

// layOut has the bystander, who has no quota, produce what will be read.
func (d *demo) layOut(ctx context.Context, need float64) (from, to map[int32]int64, err error) {
	cl, err := d.kafka(d.st.Bystander, append(oneByOne(), kgo.MaxBufferedBytes(8<<20))...)
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	if from, err = ends(ctx, cl, d.loadOut); err != nil {
		return nil, nil, err
	}
	c := d.counts[d.st.Bystander.ClientID]
	before := c.inRecords.Load()
	n := int64(need) / loadBatch
	var failed firstError
	for i := range n {
		cl.Produce(ctx, &kgo.Record{Topic: d.loadOut, Partition: int32(i % partitions), Value: filler(uint64(i), loadBatch)}, failed.note)
	}
	if err := cl.Flush(ctx); err != nil {
		return nil, nil, err
	}
	if err := failed.get(); err != nil {
		return nil, nil, err
	}
	if err := d.settle(ctx, &c.inRecords, before+n); err != nil {
		return nil, nil, err
	}
	to, err = ends(ctx, cl, d.loadOut)
	return from, to, err
}

// firstError keeps the first failure of many promises.
type firstError struct{ p atomic.Pointer[error] }

func (f *firstError) note(_ *kgo.Record, err error) {
	if err != nil {
		f.p.CompareAndSwap(nil, &err)
	}
}

func (f *firstError) get() error {
	if p := f.p.Load(); p != nil {
		return *p
	}
	return nil
}

// meter measures a rate between two moments.
type meter struct {
	at    time.Time
	bytes int64
}

func (m *meter) start(bytes int64) { m.at, m.bytes = time.Now(), bytes }

func (m *meter) rate(bytes int64) float64 { return float64(bytes-m.bytes) / time.Since(m.at).Seconds() }

// greedyProduce produces at the quota's own pace, then as much as it can, and
// measures the latter.
func (d *demo) greedyProduce(ctx context.Context, quota float64) (float64, error) {
	// Few wait in the client: what it still holds at the end must be sent too.
	cl, err := d.kafka(d.st.Greedy, append(oneByOne(), kgo.MaxBufferedRecords(4*partitions))...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	c := d.counts[d.st.Greedy.ClientID]
	before := c.inRecords.Load()
	var failed firstError
	sent := int64(0)
	produce := func(until time.Time, pace *rate.Limiter) error {
		for time.Now().Before(until) {
			if pace != nil {
				if err := pace.WaitN(ctx, loadBatch); err != nil {
					return err
				}
			}
			// It blocks while the client's buffer is full: then the broker sets the pace.
			cl.Produce(ctx, &kgo.Record{Topic: d.loadIn, Partition: int32(sent % partitions), Value: filler(uint64(sent), loadBatch)}, failed.note)
			sent++
			if err := errors.Join(failed.get(), ctx.Err()); err != nil {
				return err
			}
		}
		return nil
	}
	began := time.Now()
	if err := produce(began.Add(evenFor), rate.NewLimiter(rate.Limit(quota), loadBatch)); err != nil {
		return 0, err
	}
	var m meter
	m.start(c.in.Load())
	if err := produce(time.Now().Add(measuredFor), nil); err != nil {
		return 0, err
	}
	measured := m.rate(c.in.Load())
	if err := cl.Flush(ctx); err != nil {
		return 0, err
	}
	if err := failed.get(); err != nil {
		return 0, err
	}
	return measured, d.settle(ctx, &c.inRecords, before+sent)
}

// greedyConsume does the same the other way.
func (d *demo) greedyConsume(ctx context.Context, quota float64, from, to map[int32]int64) (float64, error) {
	cl, err := d.kafka(d.st.Greedy, at(d.loadOut, from),
		// Small answers: what lies read in the client's buffer is metered already.
		kgo.FetchMaxBytes(2*loadBatch), kgo.FetchMaxPartitionBytes(loadBatch))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	c := d.counts[d.st.Greedy.ClientID]
	pace := rate.NewLimiter(rate.Limit(quota), 8*loadBatch)
	began := time.Now()
	var m meter
	var measured float64
	err = readTo(ctx, cl, from, to, func(r *kgo.Record) {
		switch since := time.Since(began); {
		case since < evenFor:
			_ = pace.WaitN(ctx, len(r.Value))
		case m.at.IsZero():
			m.start(c.out.Load())
		case measured == 0 && time.Since(m.at) >= measuredFor:
			measured = m.rate(c.out.Load())
		}
	})
	if err == nil && measured == 0 {
		err = fmt.Errorf("all was read after %v: the quota does not hold it back", time.Since(began).Round(time.Millisecond))
	}
	return measured, err
}

// ping produces small records, one at a time, and measures how long each takes.
func (d *demo) ping(ctx context.Context, long time.Duration) ([]time.Duration, error) {
	cl, err := d.kafka(d.st.Bystander, even(), kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	c := d.counts[d.st.Bystander.ClientID]
	before := c.inRecords.Load()
	sent := int64(0)
	send := func() (time.Duration, error) {
		began := time.Now()
		err := cl.ProduceSync(ctx, &kgo.Record{Topic: pingTopic, Partition: int32(sent % partitions), Value: filler(uint64(sent), 200)}).FirstErr()
		sent++
		return time.Since(began), err
	}
	for range 2 * partitions { // connections and logins are not what is measured
		if _, err := send(); err != nil {
			return nil, err
		}
	}
	var took []time.Duration
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); {
		t, err := send()
		if err != nil {
			return nil, err
		}
		took = append(took, t)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return took, d.settle(ctx, &c.inRecords, before+sent)
}

func percentile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	s := slices.Clone(all)
	slices.Sort(s)
	return s[min(len(s)-1, int(p*float64(len(s))))]
}

func latencies(all []time.Duration) string {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", ms(percentile(all, 0.5)), ms(percentile(all, 0.99)))
}
