// Command bench measures Penstock against Apache Kafka 4.4 on the same machine
// in the same run, one broker each and then three. Both run side by side and are
// loaded in turns, a few seconds each, so that what else the machine does hits
// both; every load is run unmeasured first. Ready-made batches keep the client's cost
// low. Where it can be, what the machine asks of anybody for the same work is measured
// beside them, see floor.go. It prints the median of each figure with its extremes,
// the ratios of the medians (below 1 is better for us in every row but MB/s), and
// a verdict on each target. Run it by `make bench`.
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
	"time"
)

// figures are the results of one run, by row name.
type figures map[string]float64

func main() {
	var o options
	flag.StringVar(&o.broker, "broker", "bin/penstock-broker", "our broker's binary")
	flag.IntVar(&o.rounds, "rounds", 3, "measured runs of each load against each make, in turns")
	flag.Int64Var(&o.produceBytes, "bytes", 400e6, "record bytes of one produce run; a fetch run reads all that was produced")
	flag.IntVar(&o.singles, "singles", 50_000, "requests of the single-record run")
	flag.DurationVar(&o.latency, "latency", 5*time.Second, "length of the end-to-end run")
	flag.BoolVar(&o.cluster, "cluster", true, "measure three brokers, too")
	flag.BoolVar(&o.single, "single", true, "measure one broker")
	flag.Float64Var(&o.backlog, "backlog", 4, "GB that the consumer far behind has before it; 0 leaves the scenario out")
	flag.Float64Var(&o.backlogMBs, "backlog-rate", 0, "MB/s that this consumer may read; 0: as fast as it can")
	flag.Float64Var(&o.behind, "behind", 2, "GB that a follower has to catch up with")
	flag.IntVar(&o.offsets, "offsets", 1_000_000, "committed offsets that a coordinator has to load; 0 leaves the scenario out")
	flag.BoolVar(&o.groups, "groups", false, "measure the group coordinator only")
	flag.BoolVar(&o.transactions, "transactions", false, "measure transactions only")
	partitions := flag.Bool("partitions", false, "measure one broker with many partitions instead: start, memory, files, idle CPU")
	only := flag.String("only", "", "measure only one make: kafka or penstock")
	floor := flag.String(strings.TrimPrefix(floorFlag, "-"), "", "be the server that is the machine's floor, in this folder; the bench starts it itself")
	behind := flag.String(strings.TrimPrefix(behindFlag, "-"), "", "be the consumer far behind; the bench starts it itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch {
	case *floor != "":
		err = serveFloor(*floor)
	case *behind != "":
		err = beBehind(*behind)
	case *partitions:
		err = manyPartitions(ctx, o, *only)
	default:
		err = run(ctx, o, *only)
	}
	if err != nil {
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
	backlog      float64
	backlogMBs   float64
	behind       float64
	offsets      int
	groups       bool
	transactions bool
}

// starter brings up that many brokers in a folder.
type starter func(ctx context.Context, o options, dir string, brokers int) (*target, error)

// contestant is one of the two makes, or the floor.
type contestant struct {
	name  string
	start starter
	t     *target
	rows  []figures
}

// step is one load: run measures it against a target that has been warmed up.
type step struct {
	warm  int  // unmeasured runs before; Java compiles what is hot
	once  bool // one measurement is enough
	floor bool // the floor can do it, too
	run   func(ctx context.Context, o options, t *target, f figures) error
}

// run reports what was measured before an error, too: a quarter of an hour's work.
func run(ctx context.Context, o options, only string) error {
	var all []*contestant
	for _, c := range []*contestant{{name: "kafka", start: startKafka}, {name: "penstock", start: startPenstock}} {
		if only == "" || only == c.name {
			all = append(all, c)
		}
	}
	floor := &contestant{name: "floor", start: startFloor}
	defer func() {
		r := results{}
		for _, c := range append(all, floor) {
			r[c.name] = c.rows
		}
		report(os.Stdout, r)
	}()
	part := o.groups || o.transactions
	if o.single && !part {
		// Each start is of a new broker; the last ones stay for the loads.
		for range o.rounds - 1 {
			if err := compete(ctx, o, all, 1, startSteps); err != nil {
				return err
			}
		}
		if err := compete(ctx, o, append(all[:len(all):len(all)], floor), 1, slices.Concat(startSteps, singleSteps)); err != nil {
			return err
		}
	}
	if o.offsets > 0 && (o.groups || !part) {
		if err := compete(ctx, o, all, 1, offsetSteps); err != nil {
			return err
		}
	}
	if o.backlog > 0 && !part {
		if err := compete(ctx, o, all, 1, backlogSteps); err != nil {
			return err
		}
	}
	if o.cluster {
		steps := slices.Concat(clusterSteps, groupSteps, txnSteps)
		if part {
			steps = slices.Clone(clusterSteps[:1]) // the topic
			if o.groups {
				steps = append(steps, groupSteps...)
			}
			if o.transactions {
				steps = append(steps, txnSteps...)
			}
		}
		if err := compete(ctx, o, all, 3, steps); err != nil {
			return err
		}
	}
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
				if c.t.floor && !s.floor {
					continue
				}
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
