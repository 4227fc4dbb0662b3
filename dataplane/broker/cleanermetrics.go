package broker

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// cleanerMetrics defines what the broker says of log compaction, by log folder.
func (b *Broker) cleanerMetrics(m metric.Meter) error {
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		keep(err)
		return g
	}
	counter := func(name, unit, description string) metric.Int64ObservableCounter {
		c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		keep(err)
		return c
	}
	ratio, err := m.Float64ObservableGauge("penstock.cleaner.max_dirty_ratio", metric.WithUnit("1"), metric.WithDescription("Largest dirty share of a compacted log."))
	keep(err)
	age, err := m.Float64ObservableGauge("penstock.cleaner.max_dirty_age", metric.WithUnit("s"), metric.WithDescription("Age of the oldest record that could be compacted and is not."))
	keep(err)
	bad := gauge("penstock.cleaner.uncleanable.count", "{partition}", "Partitions whose compaction has failed.")
	badBytes := gauge("penstock.cleaner.uncleanable.size", "By", "Size of their logs that is not compacted.")
	cleans := counter("penstock.cleaner.cleans", "{clean}", "Logs compacted.")
	failures := counter("penstock.cleaner.failures", "{clean}", "Compactions that failed for good.")
	read := counter("penstock.cleaner.read", "By", "Bytes read by compaction.")
	written := counter("penstock.cleaner.written", "By", "Bytes written by compaction.")
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		st := b.partitions.CleanerStats()
		for path, d := range st.Dirs {
			dir := metric.WithAttributes(attribute.String("log_dir", path))
			o.ObserveFloat64(ratio, d.MaxDirtyRatio, dir)
			o.ObserveFloat64(age, d.MaxDirtyAge.Seconds(), dir)
			o.ObserveInt64(bad, int64(len(d.Uncleanable)), dir)
			o.ObserveInt64(badBytes, d.UncleanableBytes, dir)
		}
		o.ObserveInt64(cleans, st.Cleans)
		o.ObserveInt64(failures, st.Failures)
		o.ObserveInt64(read, st.BytesRead)
		o.ObserveInt64(written, st.BytesWritten)
		return nil
	}, ratio, age, bad, badBytes, cleans, failures, read, written)
	return errors.Join(append(errs, err)...)
}
