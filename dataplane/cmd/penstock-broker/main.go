// Command penstock-broker runs one broker from a Kafka server.properties file:
//
//	penstock-broker --config server.properties [--override key=value ...]
//	penstock-broker --check --config server.properties [--override key=value ...]
//	penstock-broker supervise --config server.properties [...]
//
// The second form only says what is wrong with the settings; the third is a
// parent that starts the first and keeps it running.
// SIGTERM and SIGINT stop the broker in order, whether it serves or only starts; its
// leaders are moved away first. The exit status is 0 after that, and 1 if the broker
// cannot start, cannot go on, or has not stopped in order. A second signal ends it at
// once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"penstock/dataplane/broker"
	"penstock/dataplane/config"
	"penstock/dataplane/coordination/zksession"
	"penstock/dataplane/supervise"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "supervise" {
		os.Exit(supervise.Main(args[1:], os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "penstock-broker:", err)
		os.Exit(1)
	}
}

// overrides collects a flag that may be repeated.
type overrides []string

func (o *overrides) String() string { return strings.Join(*o, " ") }
func (o *overrides) Set(s string) error {
	if !strings.Contains(s, "=") {
		return errors.New("want key=value")
	}
	*o = append(*o, s)
	return nil
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("penstock-broker", flag.ContinueOnError)
	file := flags.String("config", "", "server.properties file")
	check := flags.Bool("check", false, "only read the settings and say what is wrong with them")
	level := slog.LevelInfo
	flags.TextVar(&level, "log-level", slog.LevelInfo, "DEBUG, INFO, WARN or ERROR")
	var over overrides
	flags.Var(&over, "override", "key=value that wins over the file; repeatable")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *file == "" {
		return errors.New("--config is missing")
	}
	cfg, err := config.Load(*file, over)
	if err != nil {
		return err
	}
	if *check {
		for _, w := range cfg.Warnings() {
			fmt.Fprintln(os.Stderr, w)
		}
		return nil
	}
	levels := new(slog.LevelVar)
	levels.Set(level)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: levels}))
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	box, err := zksession.Inherited()
	if err != nil { // this broker can do without
		log.Warn("the supervisor does not learn of the ZooKeeper session", "err", err)
	}
	b, err := broker.Start(ctx, cfg, broker.Process{Log: log, Level: levels, Session: box})
	if errors.Is(err, broker.ErrStopped) {
		log.Info("stopped during the start", "at", err)
		return nil
	}
	if err != nil {
		return err
	}
	log.Info("serving", "broker", cfg.ID)
	select {
	case <-ctx.Done():
	case err = <-b.Failed():
		log.Error("stopping, since this broker cannot go on", "error", err)
	}
	log.Info("stopping")
	return errors.Join(err, b.Stop())
}
