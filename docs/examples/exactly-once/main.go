// Command exactly-once counts a topic's records and bytes by key into PostgreSQL, each record exactly once, whatever
// ends the program and at whatever moment.
//
// The trick is one transaction: what was counted and the offset behind it are stored together, so both are there or
// neither. The program goes on from the offset in PostgreSQL and commits none to Kafka; no group, no transaction of
// Kafka's and no two-phase commit is needed. Any error ends it: the truth is in PostgreSQL, and the next start goes on
// from there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type options struct {
	brokers, topic, postgres string
	batch                    int  // most records of one transaction
	once                     bool // end when all that was there at the start has been counted
	login                    login
}

func main() {
	var o options
	flag.StringVar(&o.brokers, "brokers", "127.0.0.1:9092", "bootstrap servers, separated by commas")
	flag.StringVar(&o.topic, "topic", "", "the topic to count")
	flag.StringVar(&o.postgres, "postgres", "", "connection string of PostgreSQL; tables are made in the schema exactly_once")
	flag.IntVar(&o.batch, "batch", 10_000, "most records of one transaction")
	flag.BoolVar(&o.once, "once", false, "end when all that was there at the start has been counted")
	flag.StringVar(&o.login.url, "token-url", "", "where to fetch tokens, if the brokers want some")
	flag.StringVar(&o.login.id, "client-id", "", "who fetches them; the secret is in the environment, CLIENT_SECRET")
	flag.Parse()
	o.login.secret = os.Getenv("CLIENT_SECRET")
	if o.topic == "" || o.postgres == "" || o.batch < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, o, os.Stdout)
	if err != nil && ctx.Err() == nil { // an error after the signal is the signal's
		fmt.Fprintln(os.Stderr, "exactly-once:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	db, err := pgx.Connect(ctx, o.postgres)
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(o.brokers, ",")...),
		// Records of transactions that were aborted, or may be yet, do not count.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Markers of transactions have offsets, too: with them the position reaches the end.
		kgo.KeepControlRecords(),
		// Records that are gone before they were counted are an error, not a reason to count others twice.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	}
	if o.login.url != "" {
		opts = append(opts, kgo.SASL(o.login.mechanism()))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(ctx, o.topic)
	if err = errors.Join(err, starts.Error()); err != nil {
		return err
	}
	ends, err := adm.ListCommittedOffsets(ctx, o.topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return err
	}

	l, err := openLedger(ctx, db, o.topic, starts)
	if err != nil {
		return err
	}
	from := map[int32]kgo.Offset{}
	for partition, next := range l.next {
		from[partition] = kgo.NewOffset().At(next)
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{o.topic: from})
	for !o.once || !l.reached(ends) {
		fetches := cl.PollRecords(ctx, o.batch)
		if err := fetches.Err(); err != nil { // what passes by itself the client has tried again
			return err
		}
		if err := l.store(ctx, fetches.Records()); err != nil {
			return err
		}
	}
	return l.report(ctx, out)
}
