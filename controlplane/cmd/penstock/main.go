// Command penstock is the tool of tenants and of those who run the fleet, and
// `penstock dev`, the whole service on one machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"penstock/controlplane/dev"
)

func main() {
	root := &cobra.Command{
		Use:           "penstock",
		Short:         "Penstock, a Kafka-compatible streaming service",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(devCommand())
	if err := run(root); err != nil {
		fmt.Fprintln(os.Stderr, "penstock:", err)
		os.Exit(1)
	}
}

// run runs the command. The service takes its signals itself; commands that only
// talk to it end with their context.
func run(root *cobra.Command) error {
	ctx, stop := signal.NotifyContext(context.Background(), dev.TermSignals...)
	defer stop()
	return root.ExecuteContext(ctx)
}
