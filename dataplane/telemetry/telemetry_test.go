package telemetry

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a collector that keeps what it is sent.
func receiver(t *testing.T) (url string, reports <-chan *collector.ExportMetricsServiceRequest) {
	got := make(chan *collector.ExportMetricsServiceRequest, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		req := &collector.ExportMetricsServiceRequest{}
		if err != nil || r.URL.Path != "/v1/metrics" || r.Header.Get("Content-Type") != "application/json" || protojson.Unmarshal(b, req) != nil {
			t.Errorf("%s: %s, %v", r.URL.Path, b, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		got <- req
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1/metrics", got
}

func start(t *testing.T, url string, interval time.Duration) *Reporter {
	return Start(Config{
		Endpoint: url, Interval: interval, Logger: slog.New(slog.DiscardHandler),
		Attributes: []attribute.KeyValue{attribute.String("service.instance.id", "7")},
	})
}

func gauge(t *testing.T, r *Reporter, value int64) {
	_, err := r.Meter().Int64ObservableGauge("penstock.test", metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(value)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
}

func TestMetricsReachTheCollectorAtEveryIntervalAndOnceMoreAtTheEnd(t *testing.T) {
	url, reports := receiver(t)
	r := start(t, url, 20*time.Millisecond)
	gauge(t, r, 42)
	for range 2 {
		<-reports
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var last *collector.ExportMetricsServiceRequest
	for len(reports) > 0 {
		last = <-reports
	}
	if last == nil {
		t.Fatal("no last report")
	}
	rm := last.ResourceMetrics[0]
	attributes := map[string]string{}
	for _, kv := range rm.Resource.Attributes {
		attributes[kv.Key] = kv.Value.GetStringValue()
	}
	if attributes["service.name"] != "penstock-broker" || attributes["service.instance.id"] != "7" {
		t.Errorf("resource %v", attributes)
	}
	m := rm.ScopeMetrics[0].Metrics[0]
	if m.Name != "penstock.test" || m.GetGauge().DataPoints[0].GetAsInt() != 42 {
		t.Errorf("got %v", m)
	}
}

func TestCountersAndFractionsAreSentAsTheyAre(t *testing.T) {
	url, reports := receiver(t)
	r := start(t, url, time.Hour)
	c, err := r.Meter().Int64Counter("penstock.count", metric.WithUnit("By"))
	if err != nil {
		t.Fatal(err)
	}
	c.Add(t.Context(), 1<<60, metric.WithAttributes(attribute.Int64("partition", 3), attribute.Bool("led", true), attribute.Float64("share", 0.25), attribute.String("topic", "t")))
	f, err := r.Meter().Float64Gauge("penstock.ratio")
	if err != nil {
		t.Fatal(err)
	}
	f.Record(t.Context(), 0.5)
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	ms := (<-reports).ResourceMetrics[0].ScopeMetrics[0].Metrics
	sum := ms[0].GetSum()
	if p := sum.DataPoints[0]; p.GetAsInt() != 1<<60 || !sum.IsMonotonic || sum.AggregationTemporality.String() != "AGGREGATION_TEMPORALITY_CUMULATIVE" ||
		ms[0].Unit != "By" || len(p.Attributes) != 4 || p.StartTimeUnixNano == 0 || p.TimeUnixNano < p.StartTimeUnixNano {
		t.Errorf("%v", ms[0])
	}
	if p := ms[1].GetGauge().DataPoints[0]; p.GetAsDouble() != 0.5 {
		t.Errorf("%v", ms[1])
	}
}

func TestCollectorThatIsAwayDelaysNothing(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	r := start(t, gone.URL+"/v1/metrics", 10*time.Millisecond)
	gauge(t, r, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := r.Stop(ctx); err == nil {
		t.Error("the last report cannot have arrived")
	}
	if ctx.Err() != nil {
		t.Error("stopping waited for the collector")
	}
}

func TestCollectorThatNeverAnswersHoldsAStopUpForASecond(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for what, interval := range map[string]time.Duration{"with a report under way": 20 * time.Millisecond, "with the last one": time.Hour} {
		r := start(t, "http://"+silent.Addr().String()+"/v1/metrics", interval)
		measured := make(chan struct{}, 1)
		_, err := r.Meter().Int64ObservableGauge("penstock.test", metric.WithInt64Callback(func(context.Context, metric.Int64Observer) error {
			select {
			case measured <- struct{}{}:
			default:
			}
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		if interval < time.Hour {
			<-measured
		}
		began := time.Now()
		if err := r.Stop(t.Context()); err == nil {
			t.Errorf("%s: the last report cannot have arrived", what)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: stopping took %v", what, took)
		}
	}
}

func TestNothingIsMeasuredWithoutAnEndpoint(t *testing.T) {
	r := start(t, "", time.Millisecond)
	_, err := r.Meter().Int64ObservableGauge("penstock.test", metric.WithInt64Callback(func(context.Context, metric.Int64Observer) error {
		t.Error("measured")
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
