// Command bench measures one Penstock broker against one Apache Kafka 4.4
// broker on the same machine in the same run: alternately, after an equal
// warm-up, with ready-made batches so that the client costs little. It prints
// the median of each figure and the ratio; below 1 is better for us in every
// row but MB/s. Run it by `make bench`.
package main

import (
	"context"
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
}

func main() {
	var o options
	flag.StringVar(&o.broker, "broker", "bin/penstock-broker", "our broker's binary")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds against each broker, alternating")
	flag.Int64Var(&o.produceBytes, "bytes", 1<<30, "record bytes of the produce and fetch runs; as much again is the warm-up")
	flag.IntVar(&o.singles, "singles", 100_000, "requests of the single-record run")
	flag.DurationVar(&o.latency, "latency", 10*time.Second, "length of the end-to-end run")
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
}

func run(ctx context.Context, o options, only string) error {
	targets := []struct {
		name  string
		start func(context.Context, options, string) (*target, error)
	}{{"kafka", startKafka}, {"penstock", startPenstock}}
	results := map[string][]figures{}
	for round := range o.rounds {
		for _, t := range targets {
			if only != "" && only != t.name {
				continue
			}
			began := time.Now()
			f, err := measure(ctx, o, t.start)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, t.name, err)
			}
			results[t.name] = append(results[t.name], f)
			fmt.Fprintf(os.Stderr, "round %d of %d, %s: %.0f s\n", round+1, o.rounds, t.name, time.Since(began).Seconds())
		}
	}
	print(results)
	return nil
}

func print(results map[string][]figures) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| figure\t| unit\t| Kafka 4.4\t| Penstock\t| ratio\t| better\t|")
	fmt.Fprintln(w, "|"+strings.Repeat("---\t|", 6))
	for _, r := range rows {
		k, p := median(results["kafka"], r.name), median(results["penstock"], r.name)
		verdict := "no"
		if (r.higher && p >= k) || (!r.higher && p <= k) {
			verdict = "yes"
		}
		fmt.Fprintf(w, "| %s\t| %s\t| %.2f\t| %.2f\t| %.2f\t| %s\t|\n", r.name, r.unit, k, p, p/k, verdict)
	}
	w.Flush()
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
