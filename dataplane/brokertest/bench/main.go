// Command bench measures Penstock against Apache Kafka 4.4 on the same machine
// in the same run, one broker each and then three: alternately, after an equal
// warm-up, with ready-made batches so that the client costs little. It prints
// the median of each figure and the ratio; below 1 is better for us in every
// row but MB/s. Run it by `make bench`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// figures are the results of one round against one broker, by row name.
type figures map[string]float64

// rows in the order of the table; higher says which way is better.
var rows = []struct {
	name, unit string
	higher     bool
}{
	{"start to answering", "ms", false},
	{"idle memory (RSS after start)", "MB", false},
	{"idle memory (RSS after the load, 10 s idle)", "MB", false},
	{"produce, 100 x 1 KiB batches, acks=1", "MB/s", true},
	{"produce, broker CPU", "s/GB", false},
	{"produce, p99", "ms", false},
	{"fetch from page cache", "MB/s", true},
	{"fetch, broker CPU", "s/GB", false},
	{"fetch, p99", "ms", false},
	{"produce, single 1 KiB records", "MB/s", true},
	{"produce single, broker CPU", "us/request", false},
	{"produce single, p99", "ms", false},
	{"end to end at 2,000 records/s, p50", "ms", false},
	{"end to end at 2,000 records/s, p99", "ms", false},
	{"3 brokers, RF 3, acks=all: produce", "MB/s", true},
	{"3 brokers: produce, CPU of all", "s/GB", false},
	{"3 brokers: produce, p99", "ms", false},
	{"3 brokers: end to end at 1,000 records/s, p50", "ms", false},
	{"3 brokers: end to end at 1,000 records/s, p99", "ms", false},
	{"3 brokers: idle CPU of all", "% of a core", false},
}

func main() {
	var o options
	flag.StringVar(&o.broker, "broker", "bin/penstock-broker", "our broker's binary")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds against each broker, alternating")
	flag.Int64Var(&o.produceBytes, "bytes", 1<<30, "record bytes of the produce and fetch runs; as much again is the warm-up")
	flag.IntVar(&o.singles, "singles", 100_000, "requests of the single-record run")
	flag.DurationVar(&o.latency, "latency", 10*time.Second, "length of the end-to-end run")
	flag.BoolVar(&o.cluster, "cluster", true, "measure three brokers, too")
	flag.BoolVar(&o.single, "single", true, "measure one broker")
	only := flag.String("only", "", "measure only `kafka` or `penstock`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	broker       string
	rounds       int
	produceBytes int64
	singles      int
	latency      time.Duration
	single       bool
	cluster      bool
}

// starter brings up that many brokers in a folder.
type starter func(ctx context.Context, o options, dir string, brokers int) (*target, error)

func run(ctx context.Context, o options, only string) error {
	targets := []struct {
		name  string
		start starter
	}{{"kafka", startKafka}, {"penstock", startPenstock}}
	results := map[string][]figures{}
	for round := range o.rounds {
		for _, t := range targets {
			if only != "" && only != t.name {
				continue
			}
			began := time.Now()
			f := figures{}
			for _, kind := range []struct {
				wanted  bool
				brokers int
				loads   func(context.Context, options, *target, figures) error
			}{{o.single, 1, measureOne}, {o.cluster, 3, measureThree}} {
				if !kind.wanted {
					continue
				}
				if err := with(ctx, o, t.start, kind.brokers, f, kind.loads); err != nil {
					return fmt.Errorf("round %d, %s, %d brokers: %w", round+1, t.name, kind.brokers, err)
				}
			}
			results[t.name] = append(results[t.name], f)
			fmt.Fprintf(os.Stderr, "round %d of %d, %s: %.0f s\n", round+1, o.rounds, t.name, time.Since(began).Seconds())
		}
	}
	print(results)
	return nil
}

// with runs loads against new brokers in a new folder and stops them.
func with(ctx context.Context, o options, start starter, brokers int, f figures, loads func(context.Context, options, *target, figures) error) (err error) {
	dir, err := os.MkdirTemp("", "penstock-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t, err := start(ctx, o, dir, brokers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	if err := t.whole(); err != nil {
		return err
	}
	return loads(ctx, o, t, f)
}

func print(results map[string][]figures) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| figure\t| unit\t| Kafka 4.4\t| Penstock\t| ratio\t| better\t|")
	fmt.Fprintln(w, "|"+strings.Repeat("---\t|", 6))
	for _, r := range rows {
		if !measured(results, r.name) {
			continue
		}
		k, p := median(results["kafka"], r.name), median(results["penstock"], r.name)
		verdict := "no"
		if (r.higher && p >= k) || (!r.higher && p <= k) {
			verdict = "yes"
		}
		fmt.Fprintf(w, "| %s\t| %s\t| %s\t| %s\t| %.2f\t| %s\t|\n", r.name, r.unit, spread(results["kafka"], r.name), spread(results["penstock"], r.name), p/k, verdict)
	}
	w.Flush()
}

func measured(results map[string][]figures, name string) bool {
	for _, rounds := range results {
		for _, f := range rounds {
			if _, ok := f[name]; ok {
				return true
			}
		}
	}
	return false
}

func median(rounds []figures, name string) float64 {
	var v []float64
	for _, f := range rounds {
		v = append(v, f[name])
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// spread is the median with the smallest and the largest figure.
func spread(rounds []figures, name string) string {
	var v []float64
	for _, f := range rounds {
		v = append(v, f[name])
	}
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s..%s)", short(median(rounds, name)), short(slices.Min(v)), short(slices.Max(v)))
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
