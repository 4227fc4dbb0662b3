package admission

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that stands until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock               { return &clock{now: time.UnixMilli(1_700_000_000_000)} }
func (c *clock) Now() time.Time      { c.mu.Lock(); defer c.mu.Unlock(); return c.now }
func (c *clock) add(d time.Duration) { c.mu.Lock(); c.now = c.now.Add(d); c.mu.Unlock() }
func newTestQuotas(c *clock) *Quotas { return NewQuotas(QuotaConfig{Clock: c.Now}) }
func set(t testing.TB, q *Quotas, path string, kv ...string) {
	t.Helper()
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	if err := q.Update(path, m); err != nil {
		t.Fatal(err)
	}
}

// The rate, its window and the throttle are those of Kafka to the last ms.
func TestRateIsKafkas(t *testing.T) {
	f, err := os.Open("testdata/rate.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r *rate
	var bound float64
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscanf(line, "run %g", &bound); err == nil {
			r = new(rate)
			continue
		}
		var now, w, ms int64
		var v, per float64
		if _, err := fmt.Sscan(line, &now, &v, &per, &w, &ms); err != nil {
			t.Fatal(line, err)
		}
		r.record(v, now, 11, 1000)
		gotPer, gotW := r.measure(now, 11, 1000)
		got := throttle(gotPer, bound, gotW).Milliseconds()
		if math.Abs(gotPer-per) > 1e-6*math.Max(1, math.Abs(per)) || gotW != w || got != ms {
			t.Fatalf("line %q: got rate %v, window %d, throttle %d", line, gotPer, gotW, got)
		}
		n++
	}
	if n != 720 {
		t.Fatalf("%d lines", n)
	}
}

func TestColdClientMayBurstTenWindows(t *testing.T) {
	c := newClock()
	q := newTestQuotas(c)
	set(t, q, "/config/users/a", ProducerByteRate, "1000")
	if d := q.Produce("a", "x", 10_000); d != 0 {
		t.Fatalf("throttled by %v at the bound", d)
	}
	if d := q.Produce("a", "x", 1000); d != time.Second {
		t.Fatalf("throttled by %v", d)
	}
	c.add(11 * time.Second)
	if d := q.Produce("a", "x", 10_000); d != 0 {
		t.Fatalf("the old burst is remembered: %v", d)
	}
}

// Long runs keep to the rate, whatever the request size.
func TestSustainedRateIsTheQuota(t *testing.T) {
	for _, size := range []int{100, 5000, 60_000} {
		c := newClock()
		q := newTestQuotas(c)
		set(t, q, "/config/users/a", ProducerByteRate, "10000")
		var sent int
		start := c.Now()
		for c.Now().Sub(start) < 300*time.Second {
			sent += size
			c.add(q.Produce("a", "x", size) + time.Millisecond)
		}
		rate := float64(sent) / c.Now().Sub(start).Seconds()
		if rate < 9_500 || rate > 10_900 { // the first burst is in it
			t.Errorf("size %d: %.0f B/s", size, rate)
		}
	}
}

func TestPrecedence(t *testing.T) {
	c := newClock()
	q := newTestQuotas(c)
	levels := []string{ // weakest first
		"/config/clients/<default>", "/config/clients/app", "/config/users/<default>", "/config/users/<default>/clients/<default>",
		"/config/users/<default>/clients/app", "/config/users/al%20ice", "/config/users/al%20ice/clients/<default>", "/config/users/al%20ice/clients/app",
	}
	limit := func() int64 { return q.FetchLimit("al ice", "app") }
	if limit() != math.MaxInt64 {
		t.Fatal("limited without a quota")
	}
	for i, l := range levels {
		set(t, q, l, ConsumerByteRate, fmt.Sprint(100*(i+1)))
		if limit() != int64(1000*(i+1)) {
			t.Fatalf("%s: limit %d", l, limit())
		}
	}
	for i := len(levels) - 1; i > 0; i-- { // deleting falls through at once
		set(t, q, levels[i])
		if limit() != int64(1000*i) {
			t.Fatalf("without %s: limit %d", levels[i], limit())
		}
	}
	set(t, q, "/config/clients/other", ConsumerByteRate, "7")
	if q.FetchLimit("x", "y") != 1000 || q.FetchLimit("x", "other") != 70 {
		t.Fatal("client levels")
	}
}

func TestWhoSharesABucket(t *testing.T) {
	type who struct{ user, client string }
	for _, c := range []struct {
		path string
		a, b who
		same bool
	}{
		{"/config/users/u", who{"u", "1"}, who{"u", "2"}, true},
		{"/config/users/<default>", who{"u", "1"}, who{"u", "2"}, true},
		{"/config/users/<default>", who{"u", "1"}, who{"v", "1"}, false},
		{"/config/users/u/clients/<default>", who{"u", "1"}, who{"u", "2"}, false},
		{"/config/users/<default>/clients/1", who{"u", "1"}, who{"v", "1"}, false},
		{"/config/users/<default>/clients/<default>", who{"u", "1"}, who{"u", "2"}, false},
		{"/config/clients/1", who{"u", "1"}, who{"v", "1"}, true},
		{"/config/clients/<default>", who{"u", "1"}, who{"v", "1"}, true},
		{"/config/clients/<default>", who{"u", "1"}, who{"u", "2"}, false},
	} {
		q := newTestQuotas(newClock())
		set(t, q, c.path, ProducerByteRate, "100")
		q.Produce(c.a.user, c.a.client, 1000)
		if got := q.Produce(c.b.user, c.b.client, 1) > 0; got != c.same {
			t.Errorf("%s: %v and %v share %v", c.path, c.a, c.b, got)
		}
	}
}

func TestKindsAreApart(t *testing.T) {
	q := newTestQuotas(newClock())
	set(t, q, "/config/users/u", ProducerByteRate, "100", ConsumerByteRate, "200", RequestPercentage, "10", "SCRAM-SHA-256", "x")
	if q.Produce("u", "c", 2000) != 10*time.Second || q.Fetch("u", "c", 2000) != 0 || q.Request("u", "c", time.Millisecond) != 0 {
		t.Fatal("one kind's use counts for another")
	}
}

func TestThrottledFetchIsTakenBack(t *testing.T) {
	q := newTestQuotas(newClock())
	set(t, q, "/config/users/u", ConsumerByteRate, "100")
	if q.Fetch("u", "c", 900) != 0 {
		t.Fatal("throttled")
	}
	for range 5 { // refused again and again, the client must not fall behind further
		if d := q.Fetch("u", "c", 500); d != 4*time.Second {
			t.Fatalf("throttle %v", d)
		}
		q.UnrecordFetch("u", "c", 500)
	}
	if q.Fetch("u", "c", 100) != 0 {
		t.Fatal("throttled")
	}
}

func TestRequestTimeIsPercentOfOneThread(t *testing.T) {
	c := newClock()
	q := newTestQuotas(c)
	if q.RequestsLimited() {
		t.Fatal("limited")
	}
	set(t, q, "/config/users/u", RequestPercentage, "50")
	if !q.RequestsLimited() {
		t.Fatal("not limited")
	}
	if d := q.Request("u", "c", 5*time.Second); d != 0 { // 500 %s over 10 s
		t.Fatalf("throttle %v at the bound", d)
	}
	if d := q.Request("u", "c", 100*time.Millisecond); d != 200*time.Millisecond {
		t.Fatalf("throttle %v", d)
	}
	if d := q.Request("u", "c", 10*time.Second); d != time.Second {
		t.Fatalf("throttle %v is above one window", d)
	}
	q = newTestQuotas(c)
	set(t, q, "/config/users/u", RequestPercentage, "50")
	q.RequestNetwork("u", "c", time.Hour) // counted, not checked
	if d := q.Request("u", "c", 0); d != time.Second {
		t.Fatalf("network time is not counted: %v", d)
	}
}

func TestIdleBucketsAreForgotten(t *testing.T) {
	c := newClock()
	q := newTestQuotas(c)
	set(t, q, "/config/clients/<default>", ProducerByteRate, "100")
	for i := range 1000 {
		q.Produce("u", fmt.Sprint(i), 1)
	}
	if q.Buckets() != 1000 {
		t.Fatalf("%d buckets", q.Buckets())
	}
	c.add(idleAfter + time.Minute)
	for i := range 1000 { // any use of a shard sweeps it
		q.Produce("u", fmt.Sprint("new", i), 1)
	}
	if q.Buckets() != 1000 {
		t.Fatalf("%d buckets", q.Buckets())
	}
}

func TestMadeUpClientIDsCannotFillTheMemory(t *testing.T) {
	q := NewQuotas(QuotaConfig{MaxBuckets: 100, Clock: newClock().Now})
	set(t, q, "/config/clients/<default>", ProducerByteRate, "100")
	for i := range 10_000 {
		q.Produce("u", fmt.Sprint(i), 1)
	}
	if n := q.Buckets(); n > 100+len(q.shards) {
		t.Fatalf("%d buckets", n)
	}
}

func TestBadQuotasAreReportedOthersHold(t *testing.T) {
	q := newTestQuotas(newClock())
	err := q.Update("/config/users/u", map[string]string{ProducerByteRate: "many", ConsumerByteRate: "10"})
	if err == nil || !strings.Contains(err.Error(), ProducerByteRate) || q.FetchLimit("u", "c") != 100 {
		t.Fatalf("%v", err)
	}
	for _, path := range []string{"", "/config/topics/t", "/config/users", "/config/users/", "/config/users/u/clients", "/config/users/u/topics/t", "/config/users/%zz", "/config/clients/a/users/b"} {
		if q.Update(path, nil) == nil {
			t.Errorf("%q accepted", path)
		}
	}
}

func TestReset(t *testing.T) {
	q := newTestQuotas(newClock())
	set(t, q, "users/u", ConsumerByteRate, "10")
	if err := q.Reset(map[string]map[string]string{"/config/users/v": {ConsumerByteRate: "20"}}); err != nil {
		t.Fatal(err)
	}
	if q.FetchLimit("u", "c") != math.MaxInt64 || q.FetchLimit("v", "c") != 200 {
		t.Fatal("not replaced")
	}
}

func TestQuotaOfNothingStops(t *testing.T) {
	q := newTestQuotas(newClock())
	set(t, q, "/config/users/u", ProducerByteRate, "0")
	if d := q.Produce("u", "c", 1); d != maxThrottle {
		t.Fatalf("throttle %v", d)
	}
}

func TestEntityPaths(t *testing.T) {
	u, d := part{named, "a/b c*<default>é"}, part{kind: byDefault}
	const name = "a%2Fb%20c%2A%3Cdefault%3E%C3%A9"
	for path, want := range map[string]Entity{
		"users/" + name: {user: u}, "users/<default>": {user: d}, "clients/" + name: {client: u}, "clients/<default>": {client: d},
		"users/" + name + "/clients/<default>": {user: u, client: d}, "users/<default>/clients/" + name: {user: d, client: u},
	} {
		for _, p := range []string{path, "/config/" + path} {
			if e, ok := ParsePath(p); !ok || e != want {
				t.Errorf("%q: %+v, %v", p, e, ok)
			}
		}
	}
	for _, p := range []string{"", "users", "users/", "topics/t", "ips/1", "users/u/clients", "users/u/topics/t", "clients/c/users/u", "users/%zz"} {
		if e, ok := ParsePath(p); ok {
			t.Errorf("%q was read as %+v", p, e)
		}
	}
}

func TestChargesFromManyGoroutines(t *testing.T) {
	q := NewQuotas(QuotaConfig{})
	set(t, q, "/config/users/<default>", ProducerByteRate, "1000000")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				q.Produce(fmt.Sprint(i%7), "c", 100)
				if g == 0 && i%50 == 0 {
					q.Update("/config/users/1", map[string]string{ProducerByteRate: fmt.Sprint(i + 1)})
				}
			}
		})
	}
	wg.Wait()
}

func FuzzParsePath(f *testing.F) {
	f.Add("/config/users/a%20b/clients/<default>")
	f.Fuzz(func(t *testing.T, s string) {
		if e, ok := ParsePath(s); ok && e == (Entity{}) {
			t.Fatalf("%q is the path of nothing", s)
		}
	})
}

func BenchmarkProduce(b *testing.B) {
	q := NewQuotas(QuotaConfig{})
	set(b, q, "/config/users/u", ProducerByteRate, "1000000000000")
	b.ReportAllocs()
	for b.Loop() {
		q.Produce("u", "client", 1000)
	}
}

// A batch larger than the quota gives in all its windows comes from rest, and
// the rate over many is still the quota's.
func TestABatchAboveTheFetchLimitIsSentFromRest(t *testing.T) {
	c := newClock()
	q := newTestQuotas(c)
	set(t, q, "/config/users/u", "consumer_byte_rate", "10000")
	const batch = 400_000 // four times the limit
	began, sent := c.Now(), 0
	for c.Now().Sub(began) < 10*time.Minute {
		if q.Fetch("u", "c", batch) == 0 {
			t.Fatal("the quota was not held")
		}
		q.UnrecordFetch("u", "c", batch)
		throttle, send := q.FetchOversize("u", "c", batch)
		if throttle <= 0 {
			t.Fatalf("throttle %v", throttle)
		}
		if send {
			sent++
		}
		c.add(throttle)
	}
	rate := float64(sent*batch) / c.Now().Sub(began).Seconds()
	if rate < 8_000 || rate > 14_000 {
		t.Errorf("%d batches, %.0f bytes/s of 10000", sent, rate)
	}
	if _, send := q.FetchOversize("u", "c", 100_000); send {
		t.Error("what the limit lets through passed the quota as oversized")
	}
	if _, send := q.FetchOversize("nobody", "c", batch); send {
		t.Error("oversized without a quota")
	}
}
