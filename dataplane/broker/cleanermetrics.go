package broker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// cleanerMetrics defines what the broker says of log compaction, by log folder.
func (b *Broker) cleanerMetrics(m metric.Meter) error {
	in := &instruments{meter: m}
	ratio := in.fraction("penstock.cleaner.max_dirty_ratio", "1", "Largest dirty share of a compacted log.")
	age := in.fraction("penstock.cleaner.max_dirty_age", "s", "Age of the oldest record that could be compacted and is not.")
	bad := in.gauge("penstock.cleaner.uncleanable.count", "{partition}", "Partitions whose compaction has failed.")
	badBytes := in.gauge("penstock.cleaner.uncleanable.size", "By", "Size of their logs that is not compacted.")
	cleans := in.counter("penstock.cleaner.cleans", "{clean}", "Logs compacted.")
	failures := in.counter("penstock.cleaner.failures", "{clean}", "Compactions that failed for good.")
	read := in.counter("penstock.cleaner.read", "By", "Bytes read by compaction.")
	written := in.counter("penstock.cleaner.written", "By", "Bytes written by compaction.")
	in.read(func(_ context.Context, o metric.Observer) error {
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
	return in.err
}
