// Command bench measures Penstock against Apache Kafka 4.4 on the same machine
// in the same run, one broker each and then three. Both run side by side and are
// loaded in turns, a few seconds each, so that what else the machine does hits
// both; every load is run unmeasured first. Ready-made batches keep the client's cost
// low. It prints the median of each figure with its extremes,
// and the ratio of the medians; below 1 is better for us in every row but MB/s.
// Run it by `make bench`.
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

// figures are the results of one run, by row name.
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
	{"3 brokers: memory of the largest (RSS after the load)", "MB", false},
}

func main() {
	var o options
	flag.StringVar(&o.broker, "broker", "bin/penstock-broker", "our broker's binary")
	flag.IntVar(&o.rounds, "rounds", 3, "measured runs of each load against each make, in turns")
	flag.Int64Var(&o.produceBytes, "bytes", 400e6, "record bytes of one produce run; a fetch run reads all that was produced")
	flag.IntVar(&o.singles, "singles", 50_000, "requests of the single-record run")
	flag.DurationVar(&o.latency, "latency", 5*time.Second, "length of the end-to-end run")
	flag.BoolVar(&o.cluster, "cluster", true, "measure three brokers, too")
	flag.BoolVar(&o.single, "single", true, "measure one broker")
	partitions := flag.Bool("partitions", false, "measure one broker with many partitions instead: start, memory, files, idle CPU")
	only := flag.String("only", "", "measure only one make: kafka or penstock")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	measure := run
	if *partitions {
		measure = manyPartitions
	}
	if err := measure(ctx, o, *only); err != nil {
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

// contestant is one of the two makes.
type contestant struct {
	name  string
	start starter
	t     *target
	rows  []figures
}

// step is one load: run measures it against a target that has been warmed up.
type step struct {
	warm int  // unmeasured runs before; Java compiles what is hot
	once bool // one measurement is enough
	run  func(ctx context.Context, o options, t *target, f figures) error
}

func run(ctx context.Context, o options, only string) error {
	var all []*contestant
	for _, c := range []*contestant{{name: "kafka", start: startKafka}, {name: "penstock", start: startPenstock}} {
		if only == "" || only == c.name {
			all = append(all, c)
		}
	}
	if o.single {
		// Each start is of a new broker; the last ones stay for the loads.
		for range o.rounds - 1 {
			if err := compete(ctx, o, all, 1, startSteps); err != nil {
				return err
			}
		}
		if err := compete(ctx, o, all, 1, slices.Concat(startSteps, singleSteps)); err != nil {
			return err
		}
	}
	if o.cluster {
		if err := compete(ctx, o, all, 3, clusterSteps); err != nil {
			return err
		}
	}
	results := map[string][]figures{}
	for _, c := range all {
		results[c.name] = c.rows
	}
	print(results)
	return nil
}

// compete starts a cluster of each make in a new folder, runs the steps in turns
// and stops them.
func compete(ctx context.Context, o options, all []*contestant, brokers int, steps []step) (err error) {
	dir, err := os.MkdirTemp("", "penstock-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, c := range all {
		if c.t, err = c.start(ctx, o, dir, brokers); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer func() { err = errors.Join(err, c.t.stop()) }()
		if err := c.t.whole(); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for i, s := range steps {
		began := time.Now()
		rounds := o.rounds
		if s.once {
			rounds = 1
		}
		for round := range s.warm + rounds {
			for _, c := range all {
				f := figures{}
				if err := s.run(ctx, o, c.t, f); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				if round >= s.warm {
					c.rows = append(c.rows, f)
				}
			}
		}
		fmt.Fprintf(os.Stderr, "%d brokers, step %d of %d: %.0f s\n", brokers, i+1, len(steps), time.Since(began).Seconds())
	}
	return nil
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
		if x, ok := f[name]; ok {
			v = append(v, x)
		}
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
		if x, ok := f[name]; ok {
			v = append(v, x)
		}
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
