package brokertest

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"penstock/dataplane/supervise"
	"penstock/internal/process"
)

// process is the broker's, which its supervisor has written down.
func (n *Node) process() (process.ID, error) {
	return process.ReadFile(filepath.Join(filepath.Dir(n.Properties), supervise.BrokerFile))
}

// KillProcess ends a supervised broker, and not its supervisor, by SIGKILL. It
// returns when the signal was sent, once the process is gone.
func (n *Node) KillProcess() (sent time.Time) {
	t := n.c.t
	t.Helper()
	id, err := n.process()
	if err != nil {
		t.Fatal(err)
	}
	sent = time.Now()
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := id.Wait(ctx); err != nil {
		t.Fatalf("broker %d does not go: %v", n.ID, err)
	}
	return sent
}

// Restart has the supervisor start a broker that KillProcess has ended, and waits
// until it serves and is known to all.
func (n *Node) Restart() {
	n.c.t.Helper()
	Await(n.c.t, 10*time.Second, fmt.Sprintf("word that broker %d is gone", n.ID), func() error {
		if id, err := n.process(); err == nil {
			return fmt.Errorf("it was %v", id)
		}
		return nil
	})
	n.Signal(syscall.SIGHUP)
	n.AwaitServing()
	for _, o := range n.c.Brokers {
		o.awaitBrokers(len(n.c.Brokers))
	}
}
