package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"penstock/internal/process"
)

// What an operator does to one broker by hand works on its folder alone: with
// no engine, no control plane and no database.

// HoldStopped stops the broker in this folder cleanly and keeps it stopped,
// whatever happens to its supervisor, until LetRun. It returns when the broker
// is gone.
func HoldStopped(ctx context.Context, dir string) error {
	done := filepath.Join(dir, doneFile)
	if err := os.Remove(done); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, stoppedFile), nil, 0o600); err != nil {
		return err
	}
	st, err := Look(dir)
	if err != nil {
		return err
	}
	if err := wake(st); err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		// Not the absence of a broker counts: its supervisor may be about to start
		// it, and looks at the file only after.
		if _, err := os.Stat(done); err == nil {
			return nil
		}
		if watched, err := supervised(dir); err != nil {
			return err
		} else if !watched {
			return st.Broker.Wait(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// LetRun undoes HoldStopped and starts the broker at once, supervisor included.
// A running broker is left alone. It does not wait until the broker answers.
func LetRun(ctx context.Context, dir string) error {
	if err := os.Remove(filepath.Join(dir, stoppedFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	st, err := Look(dir)
	if err != nil {
		return err
	}
	if !st.Supervisor.Zero() {
		return wake(st)
	}
	return Start(ctx, dir)
}

// KillBroker sends SIGKILL to the broker in this folder and waits until it is
// gone. Its supervisor takes that for a death like any other.
func KillBroker(ctx context.Context, dir string) error {
	st, err := Look(dir)
	if err != nil {
		return err
	}
	if st.Broker.Zero() {
		return fmt.Errorf("broker in %s does not run", dir)
	}
	return st.Broker.Kill(ctx)
}

// wake makes the supervisor look at the file stopped.
func wake(st BrokerStatus) error {
	if err := st.Supervisor.Signal(syscall.SIGHUP); err != nil && !errors.Is(err, process.ErrGone) {
		return err
	}
	return nil
}
