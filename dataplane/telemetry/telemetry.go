// Package telemetry sends a broker's metrics to an OpenTelemetry collector over
// OTLP/HTTP. It only carries: what is measured is defined where it is known.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Config says where metrics go and whose they are.
type Config struct {
	// Endpoint is the http or https URL that OTLP metrics are posted to, as a rule
	// with the path /v1/metrics; empty: nothing is measured or sent.
	Endpoint string
	// Interval lies between two reports; each has 10 s, or the interval if that is
	// shorter, to be taken.
	Interval time.Duration
	// Attributes describe the broker: service.instance.id and the like.
	Attributes []attribute.KeyValue
	Logger     *slog.Logger
}

// Reporter sends metrics until Stop.
type Reporter struct {
	meters metric.MeterProvider
	sdk    *sdk.MeterProvider // nil: nothing is sent
}

// Start begins to send. A collector that cannot be reached is no error: there is
// another report at the next interval, and the failure is logged.
func Start(c Config) *Reporter {
	if c.Endpoint == "" {
		return &Reporter{meters: noop.NewMeterProvider()}
	}
	to := &exporter{url: c.Endpoint, client: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Logger.Warn("metrics were not sent", "error", err) }))
	attributes := append([]attribute.KeyValue{attribute.String("service.name", "penstock-broker")}, c.Attributes...)
	p := sdk.NewMeterProvider(
		sdk.WithReader(sdk.NewPeriodicReader(to, sdk.WithInterval(c.Interval), sdk.WithTimeout(min(c.Interval, 10*time.Second)))),
		sdk.WithResource(resource.NewSchemaless(attributes...)),
	)
	return &Reporter{meters: p, sdk: p}
}

// Meter is where instruments are made.
func (r *Reporter) Meter() metric.Meter { return r.meters.Meter("penstock/dataplane") }

// lastReport is what the report of a stop may take: what stops has more to do than to
// wait for a collector.
const lastReport = time.Second

// Stop sends a last report and ends, in a second at most. The error is that the report
// did not arrive.
func (r *Reporter) Stop(ctx context.Context) error {
	if r.sdk == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastReport)
	defer cancel()
	if err := r.sdk.Shutdown(ctx); err != nil && !errors.Is(err, sdk.ErrReaderShutdown) {
		return fmt.Errorf("last report of metrics: %w", err)
	}
	return nil
}
