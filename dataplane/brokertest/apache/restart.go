package apache

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// heap is what Kafka's own start script sets.
var heap = []string{"-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"}

// Restart is Down and Up.
func (b *Broker) Restart(ctx context.Context, limit time.Duration) error {
	if err := b.Down(limit); err != nil {
		return err
	}
	return b.Up(ctx, limit)
}

// Down stops the broker in order and waits for its end, at most as long as limit; it
// keeps its folder and ports.
func (b *Broker) Down(limit time.Duration) error {
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.end:
	case <-time.After(limit):
		b.Kill()
		return fmt.Errorf("broker of Apache Kafka does not stop within %v, see %s", limit, b.LogFile())
	}
	var exit *exec.ExitError
	if b.err != nil && !errors.As(b.err, &exit) {
		return b.err
	}
	return nil
}

// Up starts it again on the same folder and ports and returns with the first
// answer (Started), which has to come within limit.
func (b *Broker) Up(ctx context.Context, limit time.Duration) error {
	if err := b.launch(ctx, heap...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return b.await(ctx)
}

// Ended tells whether the Java process is gone.
func (b *Broker) Ended() bool {
	select {
	case <-b.end:
		return true
	default:
		return false
	}
}
