package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// rows in the order of the table; higher says which way is better.
var rows = []struct {
	name, unit string
	higher     bool
}{
	{"start to answering", "ms", false},
	{"idle memory (RSS after start)", "MB", false},
	{"idle memory (RSS after the load, 10 s idle)", "MB", false},
	{produceRate, "MB/s", true},
	{produceCPU, "s/GB", false},
	{"produce, p99", "ms", false},
	{"fetch from page cache", "MB/s", true},
	{fetchCPU, "s/GB", false},
	{"fetch, p99", "ms", false},
	{"produce, single 1 KiB records", "MB/s", true},
	{singleCPU, "us/request", false},
	{"produce single, p99", "ms", false},
	{"produce lz4, broker CPU", "us/request", false},
	{"produce zstd, broker CPU", "us/request", false},
	{"end to end at 2,000 records/s, p50", "ms", false},
	{"end to end at 2,000 records/s, p99", "ms", false},
	{tailAlone, "ms", false},
	{tailBeside, "ms", false},
	{"tail beside one far behind, p50", "ms", false},
	{"the one far behind reads", "MB/s", true},
	{"of that from disk", "%", false},
	{"CPU that the host withheld meanwhile", "% of a core", false},
	{clusterRate, "MB/s", true},
	{clusterCPU, "s/GB", false},
	{"3 brokers: produce, p99", "ms", false},
	{"3 brokers: end to end at 1,000 records/s, p50", "ms", false},
	{clusterLatency, "ms", false},
	{"3 brokers: idle CPU of all", "% of a core", false},
	{"3 brokers: memory of the largest (RSS after the load)", "MB", false},
	{"3 brokers: a follower far behind catches up", "MB/s", true},
	{"the same: CPU of all", "s/GB", false},
	{commitAlone, "ms", false},
	{commitLatency, "ms", false},
	{rebalanceTime, "ms", false},
	{txnRate, "commits/s", true},
	{txnEnd, "ms", false},
	{txnWhole, "ms", false},
	{txnCPU, "us/commit", false},
	{offsetsLoad, "ms", false},
	{offsetsMemory, "MB", false},
}

// Rows that targets speak of.
const (
	produceRate = "produce, 100 x 1 KiB batches, acks=1"
	produceCPU  = "produce, broker CPU"
	fetchCPU    = "fetch, broker CPU"
	singleCPU   = "produce single, broker CPU"
	tailAlone   = "tail at 1,000 records/s alone, p99"
	tailBeside  = "tail beside one far behind, p99"

	clusterRate    = "3 brokers, RF 3, acks=all: produce"
	clusterCPU     = "3 brokers: produce, CPU of all"
	clusterLatency = "3 brokers: end to end at 1,000 records/s, p99"
)

// targets bound a row of ours by the same row of another, or by another row of
// ours, times limit.
var targets = []struct {
	row     string
	than    string // "kafka", "floor" or "penstock"
	thanRow string // with penstock
	limit   float64
	atLeast bool // instead of at most
}{
	{row: produceCPU, than: "kafka", limit: 0.40},
	{row: produceCPU, than: "floor", limit: 1.8},
	{row: produceRate, than: "kafka", limit: 2, atLeast: true},
	{row: fetchCPU, than: "kafka", limit: 0.60},
	{row: fetchCPU, than: "floor", limit: 1.7},
	{row: singleCPU, than: "kafka", limit: 0.35},
	{row: tailBeside, than: "penstock", thanRow: tailAlone, limit: 1.5},
	{row: clusterRate, than: "kafka", limit: 2.5, atLeast: true},
	{row: clusterCPU, than: "kafka", limit: 0.40},
	{row: clusterLatency, than: "kafka", limit: 0.35},
	{row: commitLatency, than: "kafka", limit: 0.5},
	{row: rebalanceTime, than: "kafka", limit: 0.5},
	{row: txnRate, than: "kafka", limit: 2, atLeast: true},
	{row: offsetsLoad, than: "kafka", limit: 0.5},
}

// results are the figures of all rounds, by contestant.
type results map[string][]figures

func report(out io.Writer, r results) {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| figure\t| unit\t| Kafka 4.4\t| Penstock\t| ratio\t| better\t| floor\t| through floor\t|")
	fmt.Fprintln(w, "|"+strings.Repeat("---\t|", 8))
	for _, row := range rows {
		if !r.has("kafka", row.name) && !r.has("penstock", row.name) {
			continue
		}
		verdict := "no"
		if k, p := r.median("kafka", row.name), r.median("penstock", row.name); (row.higher && p >= k) || (!row.higher && p <= k) {
			verdict = "yes"
		}
		fmt.Fprintf(w, "| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t|\n", row.name, row.unit, r.spread("kafka", row.name), r.spread("penstock", row.name),
			r.ratio(row.name, "kafka", row.name), verdict, r.spread("floor", row.name), r.ratio(row.name, "floor", row.name))
	}
	w.Flush()
	fmt.Fprintln(out)
	fmt.Fprintln(w, "| target\t| bound\t| measured\t| held\t|")
	fmt.Fprintln(w, "|"+strings.Repeat("---\t|", 4))
	for _, t := range targets {
		if t.thanRow == "" {
			t.thanRow = t.row
		}
		if !r.has("penstock", t.row) || !r.has(t.than, t.thanRow) {
			continue
		}
		of := map[string]string{"kafka": "Kafka's", "floor": "the floor's", "penstock": "that of " + t.thanRow}[t.than]
		bound, held := "at most", r.median("penstock", t.row) <= t.limit*r.median(t.than, t.thanRow)
		if t.atLeast {
			bound, held = "at least", r.median("penstock", t.row) >= t.limit*r.median(t.than, t.thanRow)
		}
		fmt.Fprintf(w, "| %s\t| %s %.2f x %s\t| %s\t| %s\t|\n", t.row, bound, t.limit, of, r.ratio(t.row, t.than, t.thanRow), map[bool]string{true: "yes", false: "NO"}[held])
	}
	w.Flush()
}

// values of one row in ascending order.
func (r results) values(who, row string) (v []float64) {
	for _, f := range r[who] {
		if x, ok := f[row]; ok {
			v = append(v, x)
		}
	}
	slices.Sort(v)
	return v
}

func (r results) has(who, row string) bool { return len(r.values(who, row)) > 0 }

func (r results) median(who, row string) float64 {
	v := r.values(who, row)
	if len(v) == 0 {
		return 0
	}
	return v[len(v)/2]
}

// ratio is our figure through another's.
func (r results) ratio(row, than, thanRow string) string {
	if !r.has("penstock", row) || !r.has(than, thanRow) {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.median("penstock", row)/r.median(than, thanRow))
}

// spread is the median with the smallest and the largest figure.
func (r results) spread(who, row string) string {
	v := r.values(who, row)
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s..%s)", short(r.median(who, row)), short(v[0]), short(v[len(v)-1]))
}

// short gives three digits, which is more than such figures are good for.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
