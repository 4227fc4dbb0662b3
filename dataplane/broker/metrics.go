package broker

import (
	"context"
	"errors"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"penstock/dataplane/telemetry"
)

// startMetrics defines what the broker says of its logs. Everything is read at
// the moment of a report: nothing is counted for metrics on the hot path.
func (b *Broker) startMetrics(context.Context) error {
	r := telemetry.Start(telemetry.Config{
		Endpoint: b.cfg.MetricsEndpoint, Interval: b.cfg.MetricsInterval, Logger: b.log,
		Attributes: []attribute.KeyValue{
			attribute.String("service.namespace", b.metadata.Image().ClusterID),
			attribute.String("service.instance.id", strconv.Itoa(int(b.cfg.ID))),
		},
	})
	b.onStop("metrics", func(ctx context.Context) error {
		if err := r.Stop(ctx); err != nil { // the collector's trouble; the broker stops as it should
			b.log.Warn("metrics were not sent", "error", err)
		}
		return nil
	})

	in := &instruments{meter: r.Meter()}
	replicas := in.gauge("penstock.partition.count", "{partition}", "Partitions that have a replica here.")
	leaders := in.gauge("penstock.partition.leaders", "{partition}", "Partitions that are led here.")
	bytes := in.gauge("penstock.log.size", "By", "Size of all logs.")
	in.read(func(_ context.Context, o metric.Observer) error {
		var n, led, size int64
		for _, p := range b.partitions.Partitions() {
			n++
			size += p.Log().Size()
			if p.IsLeader() {
				led++
			}
		}
		o.ObserveInt64(replicas, n)
		o.ObserveInt64(leaders, led)
		o.ObserveInt64(bytes, size)
		return nil
	}, replicas, leaders, bytes)
	return errors.Join(in.err, b.cleanerMetrics(r.Meter()), b.transactionMetrics(r.Meter()))
}

// instruments makes those of one part and keeps their errors together.
type instruments struct {
	meter metric.Meter
	err   error
}

func (in *instruments) keep(err error) { in.err = errors.Join(in.err, err) }

func (in *instruments) gauge(name, unit, description string) metric.Int64Observable {
	g, err := in.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	in.keep(err)
	return g
}

func (in *instruments) counter(name, unit, description string) metric.Int64Observable {
	c, err := in.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	in.keep(err)
	return c
}

func (in *instruments) fraction(name, unit, description string) metric.Float64Observable {
	g, err := in.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	in.keep(err)
	return g
}

// read has the instruments filled in by f whenever a report is made.
func (in *instruments) read(f metric.Callback, of ...metric.Observable) {
	_, err := in.meter.RegisterCallback(f, of...)
	in.keep(err)
}
