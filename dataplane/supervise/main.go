package supervise

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"penstock/internal/process"
)

type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

// Main is the subcommand `supervise` of the broker's binary, without its name:
//
//	penstock-broker supervise --config FILE [--override k=v ...] \
//	    [--lifeline-pid N --lifeline-start T] [--no-restart]
//
// The child is the same binary as `penstock-broker --config FILE [--override
// k=v ...]`. It returns the exit status: 0 after a stop that was asked for, 2
// for a wrong command line, 3 if the broker has a supervisor already, else 1.
func Main(args []string, stderr io.Writer) int {
	logger := slog.New(slog.NewTextHandler(stderr, nil)).With("part", "supervisor")
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "penstock-broker supervise:", err)
		return 2
	}
	c.Logger = logger
	switch err := Run(context.Background(), c); {
	case err == nil:
		return 0
	case errors.Is(err, ErrRunning):
		logger.Error("not started", "err", err)
		return 3
	default:
		logger.Error("ended", "err", err)
		return 1
	}
}

func parse(args []string, stderr io.Writer) (Config, error) {
	fs := flag.NewFlagSet("penstock-broker supervise", flag.ContinueOnError)
	fs.SetOutput(stderr)
	var overrides list
	config := fs.String("config", "", "the broker's server.properties; its folder also holds the pid files")
	fs.Var(&overrides, "override", "k=v, passed on to the broker; repeatable")
	pid := fs.Int("lifeline-pid", 0, "end when this process is gone")
	start := fs.Uint64("lifeline-start", 0, "its start time in clock ticks (field 22 of /proc/PID/stat); 0: as it is now")
	noRestart := fs.Bool("no-restart", false, "leave a broker that died dead")
	if err := fs.Parse(args); err != nil {
		return Config{}, err
	}
	if *config == "" || fs.NArg() > 0 {
		return Config{}, errors.New("want --config FILE and no other arguments")
	}
	file, err := filepath.Abs(*config)
	if err != nil {
		return Config{}, err
	}
	binary, err := os.Executable()
	if err != nil {
		return Config{}, fmt.Errorf("find own binary: %w", err)
	}
	c := Config{Binary: binary, Args: []string{"--config", file}, Dir: filepath.Dir(file), NoRestart: *noRestart}
	for _, o := range overrides {
		c.Args = append(c.Args, "--override", o)
	}
	if *pid != 0 {
		c.Lifeline = process.ID{PID: *pid, Start: *start}
		if *start == 0 {
			if c.Lifeline, err = process.Lookup(*pid); err != nil {
				return Config{}, fmt.Errorf("lifeline %d: %w", *pid, err)
			}
		}
	}
	return c, nil
}
