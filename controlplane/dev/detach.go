package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"penstock/internal/process"
)

// Detach starts the service in the background, shows what it says until it is
// ready, and returns. args is the command line of the service itself, without
// the name of the program. If the service ends before it is ready, its status
// is the error.
func Detach(ctx context.Context, dir string, args []string, out io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	f := folder(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if held, err := process.Locked(f.path(lockFile)); err != nil {
		return err
	} else if held {
		return fmt.Errorf("%s: %w", dir, ErrRunning)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(f.path(outputFile), os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	shown, err := os.Open(f.path(outputFile))
	if err != nil {
		return err
	}
	defer shown.Close()
	c, err := process.Start(process.Spec{Path: self, Args: args, Stdout: log, Stderr: log, Session: true})
	if err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ended := false
		select {
		case <-c.Done():
			ended = true
		case <-tick.C:
		case <-ctx.Done():
			// Ctrl-C before it is ready means the service, too.
			_ = c.ID.Terminate(context.WithoutCancel(ctx), 60*time.Second)
			return context.Cause(ctx)
		}
		in, err := ReadInfo(dir)
		ready := err == nil && in.PIDs.Dev == c.ID.PID
		if _, err := io.Copy(out, shown); err != nil { // what was said before it was ready
			return err
		}
		switch {
		case ready:
			return nil
		case ended && c.Err() != nil:
			return errors.New("the service has ended: " + c.Describe())
		case ended: // --once
			return nil
		}
	}
}

// TermSignals end a command in the foreground.
var TermSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM}
