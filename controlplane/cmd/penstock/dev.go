package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"penstock/controlplane/dev"
	"penstock/controlplane/provision"
)

func devCommand() *cobra.Command {
	o := dev.Options{Out: os.Stdout}
	var detach bool
	var set []string
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run the whole service on this machine",
		Long: `Run the whole service on this machine: PostgreSQL, ZooKeeper and the control
plane as children, and the demonstration through the public API. Everything
listens on loopback only and ends with this command, however it ends.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range set {
				p, err := provision.ParseSet(s)
				if err != nil {
					return fmt.Errorf("--set: %w", err)
				}
				o.Set = append(o.Set, p)
			}
			if err := checkDev(o, detach); err != nil {
				return err
			}
			if detach {
				return dev.Detach(cmd.Context(), o.Dir, serviceArgs(os.Args[1:]), os.Stdout)
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.BinDir = filepath.Dir(self)
			o.Terminal = isTerminal(os.Stdout)
			return dev.Run(context.WithoutCancel(cmd.Context()), o)
		},
	}
	f := c.Flags()
	f.BoolVar(&o.Bare, "bare", false, "only ZooKeeper and brokers: no control plane, no authentication")
	f.IntVar(&o.Brokers, "brokers", 1, "with --bare: how many brokers, with ids from 0")
	f.IntVar(&o.Port, "port", 0, "with --bare: port of broker 0, the others follow (default 9092, or free ones if taken)")
	f.BoolVar(&o.Once, "once", false, "stop everything after the demonstration; exit 0 only if all of it held")
	f.BoolVar(&detach, "detach", false, "leave the service running in the background and return when it is ready")
	f.BoolVar(&o.NoRestart, "no-restart", false, "leave what dies dead")
	f.StringArrayVar(&set, "set", nil, "key=value for every broker's server.properties; wins over all other lines; repeatable")
	f.BoolVar(&o.Background, "background", false, "")
	_ = f.MarkHidden("background")
	c.PersistentFlags().StringVar(&o.Dir, "dir", ".penstock", "state folder")
	c.AddCommand(statusCommand(&o.Dir), stopCommand(&o.Dir), resetCommand(&o.Dir), brokerCommand(&o.Dir))
	return c
}

func checkDev(o dev.Options, detach bool) error {
	switch {
	case !o.Bare && o.Port != 0:
		return errors.New("--port needs --bare")
	case !o.Bare && o.Brokers != 1:
		return errors.New("--brokers needs --bare: the demonstration's cluster has 3")
	case o.Bare && o.Once:
		return errors.New("--once has nothing to do with --bare: there is no demonstration")
	case o.Brokers < 1 || o.Brokers > 100:
		return errors.New("--brokers: from 1 to 100")
	case o.Port < 0 || o.Port+o.Brokers > 65536:
		return errors.New("--port: out of range")
	case detach && o.Once:
		return errors.New("--detach and --once exclude each other")
	}
	return nil
}

// serviceArgs is the command line of the service itself.
func serviceArgs(args []string) []string {
	out := make([]string, 0, len(args)+1)
	for _, a := range args {
		if a != "--detach" && a != "--detach=true" {
			out = append(out, a)
		}
	}
	return append(out, "--background")
}

func isTerminal(f *os.File) bool {
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

func statusCommand(dir *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what runs, where, and whether it is healthy",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := dev.Look(cmd.Context(), *dir)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(os.Stdout)
				e.SetIndent("", "  ")
				return e.Encode(s)
			}
			s.Print(os.Stdout)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func stopCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the service",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return dev.Stop(cmd.Context(), *dir) },
	}
}

func resetCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "reset",
		Short: "Stop the service and remove its state",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return dev.Reset(cmd.Context(), *dir) },
	}
}

func brokerCommand(dir *string) *cobra.Command {
	c := &cobra.Command{Use: "broker", Short: "Kill, stop or start one broker"}
	for verb, short := range map[string]string{
		"kill":  "kill -9 a broker; it comes back by itself",
		"stop":  "Stop a broker cleanly; it stays stopped",
		"start": "Start a broker and wait until it answers",
	} {
		c.AddCommand(&cobra.Command{
			Use:   verb + " ID",
			Short: short,
			Args: func(_ *cobra.Command, args []string) error {
				if len(args) != 1 {
					return fmt.Errorf("want one broker's id, as in `penstock dev broker %s 0`", verb)
				}
				return nil
			},
			RunE: func(cmd *cobra.Command, args []string) error {
				id, err := strconv.ParseInt(args[0], 10, 32)
				if err != nil {
					return fmt.Errorf("broker id %q: %w", args[0], err)
				}
				ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Minute)
				defer cancel()
				return dev.Broker(ctx, *dir, verb, int32(id))
			},
		})
	}
	return c
}
