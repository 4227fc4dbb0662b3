package broker

import (
	"context"
	"errors"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"penstock/dataplane/coordinator"
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
	return errors.Join(in.err, b.cleanerMetrics(r.Meter()), b.transactionMetrics(r.Meter()), b.coordinatorMetrics(r.Meter()))
}

// coordinatorMetrics defines what the broker says of the memory of groups and of the
// partitions that its coordinators load. Time through loads is Kafka's partition-load-time-avg, longest its -max.
func (b *Broker) coordinatorMetrics(m metric.Meter) error {
	in := &instruments{meter: m}
	loads := in.counter("penstock.coordinator.loads", "{partition}", "Partitions loaded.")
	failures := in.counter("penstock.coordinator.load.failures", "{read}", "Readings of a partition that failed; each is tried again.")
	records := in.counter("penstock.coordinator.load.records", "{record}", "Records read for the partitions that were loaded.")
	seconds := in.seconds("penstock.coordinator.load.time", "Time that the loads have taken, all together.")
	longest := in.fraction("penstock.coordinator.load.longest", "s", "Longest load since the last report.")
	loading := in.gauge("penstock.coordinator.loading", "{partition}", "Partitions that are being loaded, whose groups or transactions wait.")
	held := in.gauge("penstock.group.memory", "By", "Memory that groups hold, by estimate (penstock.group.memory.max.bytes).")
	refused := in.counter("penstock.group.memory.refused", "{refusal}", "New groups, members and offsets, and growth of old ones, refused for want of memory.")
	in.read(func(_ context.Context, o metric.Observer) error {
		h, n := b.groups.MemoryStats()
		o.ObserveInt64(held, h)
		o.ObserveInt64(refused, n)
		for name, s := range map[string]coordinator.LoadStats{"group": b.groups.LoadStats(), "transaction": b.txns.LoadStats()} {
			of := metric.WithAttributes(attribute.String("coordinator", name))
			o.ObserveInt64(loads, s.Loaded, of)
			o.ObserveInt64(failures, s.Failures, of)
			o.ObserveInt64(records, s.Records, of)
			o.ObserveFloat64(seconds, s.Time.Seconds(), of)
			o.ObserveFloat64(longest, s.Longest.Seconds(), of)
			o.ObserveInt64(loading, s.Loading, of)
		}
		return nil
	}, held, refused, loads, failures, records, seconds, longest, loading)
	return in.err
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

func (in *instruments) seconds(name, description string) metric.Float64Observable {
	c, err := in.meter.Float64ObservableCounter(name, metric.WithUnit("s"), metric.WithDescription(description))
	in.keep(err)
	return c
}

// read has the instruments filled in by f whenever a report is made.
func (in *instruments) read(f metric.Callback, of ...metric.Observable) {
	_, err := in.meter.RegisterCallback(f, of...)
	in.keep(err)
}
