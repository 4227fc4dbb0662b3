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

// Restart stops the broker in order, waits for its end and starts it again on the
// same folder and ports; it returns with the first answer (Started). limit bounds
// each of the two.
func (b *Broker) Restart(ctx context.Context, limit time.Duration) error {
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
	if err := b.launch(ctx, heap...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return b.await(ctx)
}
