package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// exporter posts reports as OTLP/HTTP in its JSON encoding, which every collector
// takes at the same address as the binary one. The library's own exporter links
// gRPC and all of protobuf: 12 MB of code and 6 MB of resident memory in each
// broker, for an encoding of a page.
//
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
type exporter struct {
	url    string
	client *http.Client
}

// Temporality implements sdk.Exporter.
func (e *exporter) Temporality(k sdk.InstrumentKind) metricdata.Temporality {
	return sdk.DefaultTemporalitySelector(k)
}

// Aggregation implements sdk.Exporter.
func (e *exporter) Aggregation(k sdk.InstrumentKind) sdk.Aggregation {
	return sdk.DefaultAggregationSelector(k)
}

// ForceFlush implements sdk.Exporter; nothing waits here.
func (e *exporter) ForceFlush(context.Context) error { return nil }

// Shutdown implements sdk.Exporter.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}

// Export implements sdk.Exporter. A report that fails is not tried again: the
// next one says more.
func (e *exporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	report, err := encode(m)
	if err != nil {
		return err
	}
	body, err := json.Marshal(report)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answered %s: %.200q", resp.Status, text)
	}
	return nil
}

// The parts of ExportMetricsServiceRequest that are used. 64-bit integers are
// strings in this encoding.
type (
	keyValue struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	}
	point struct {
		Attributes []keyValue `json:"attributes,omitempty"`
		Start      string     `json:"startTimeUnixNano,omitempty"`
		Time       string     `json:"timeUnixNano"`
		AsInt      *string    `json:"asInt,omitempty"`
		AsDouble   *float64   `json:"asDouble,omitempty"`
	}
	points struct {
		DataPoints  []point `json:"dataPoints"`
		Temporality int     `json:"aggregationTemporality,omitempty"`
		Monotonic   bool    `json:"isMonotonic,omitempty"`
	}
	instrument struct {
		Name        string  `json:"name"`
		Description string  `json:"description,omitempty"`
		Unit        string  `json:"unit,omitempty"`
		Gauge       *points `json:"gauge,omitempty"`
		Sum         *points `json:"sum,omitempty"`
	}
	scopeMetrics struct {
		Scope   map[string]string `json:"scope"`
		Metrics []instrument      `json:"metrics"`
	}
	resourceMetrics struct {
		Resource     map[string][]keyValue `json:"resource"`
		ScopeMetrics []scopeMetrics        `json:"scopeMetrics"`
	}
	metricsRequest struct {
		ResourceMetrics []resourceMetrics `json:"resourceMetrics"`
	}
)

func encode(m *metricdata.ResourceMetrics) (metricsRequest, error) {
	rm := resourceMetrics{Resource: map[string][]keyValue{"attributes": attributes(m.Resource.Attributes())}}
	for _, sm := range m.ScopeMetrics {
		s := scopeMetrics{Scope: map[string]string{"name": sm.Scope.Name}}
		for _, metric := range sm.Metrics {
			i := instrument{Name: metric.Name, Description: metric.Description, Unit: metric.Unit}
			switch d := metric.Data.(type) {
			case metricdata.Gauge[int64]:
				i.Gauge = &points{DataPoints: ints(d.DataPoints)}
			case metricdata.Gauge[float64]:
				i.Gauge = &points{DataPoints: floats(d.DataPoints)}
			case metricdata.Sum[int64]:
				i.Sum = &points{DataPoints: ints(d.DataPoints), Temporality: temporality(d.Temporality), Monotonic: d.IsMonotonic}
			case metricdata.Sum[float64]:
				i.Sum = &points{DataPoints: floats(d.DataPoints), Temporality: temporality(d.Temporality), Monotonic: d.IsMonotonic}
			default:
				return metricsRequest{}, fmt.Errorf("metric %s: %T cannot be sent", metric.Name, d)
			}
			s.Metrics = append(s.Metrics, i)
		}
		rm.ScopeMetrics = append(rm.ScopeMetrics, s)
	}
	return metricsRequest{ResourceMetrics: []resourceMetrics{rm}}, nil
}

func temporality(t metricdata.Temporality) int {
	if t == metricdata.DeltaTemporality {
		return 1
	}
	return 2
}

func ints(ps []metricdata.DataPoint[int64]) (out []point) {
	for _, p := range ps {
		v := strconv.FormatInt(p.Value, 10)
		out = append(out, point{Attributes: attributes(p.Attributes.ToSlice()), Start: nanos(p.StartTime), Time: nanos(p.Time), AsInt: &v})
	}
	return out
}

func floats(ps []metricdata.DataPoint[float64]) (out []point) {
	for _, p := range ps {
		out = append(out, point{Attributes: attributes(p.Attributes.ToSlice()), Start: nanos(p.StartTime), Time: nanos(p.Time), AsDouble: &p.Value})
	}
	return out
}

func nanos(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixNano(), 10)
}

func attributes(all []attribute.KeyValue) (out []keyValue) {
	for _, kv := range all {
		var v map[string]any
		switch kv.Value.Type() {
		case attribute.BOOL:
			v = map[string]any{"boolValue": kv.Value.AsBool()}
		case attribute.INT64:
			v = map[string]any{"intValue": strconv.FormatInt(kv.Value.AsInt64(), 10)}
		case attribute.FLOAT64:
			v = map[string]any{"doubleValue": kv.Value.AsFloat64()}
		default:
			v = map[string]any{"stringValue": kv.Value.String()}
		}
		out = append(out, keyValue{Key: string(kv.Key), Value: v})
	}
	return out
}
