package coordination

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// inFlight is how many requests one bulk read or write keeps in the pipeline.
const inFlight = 64

// parallel runs fn for 0..n-1, some at a time, and returns the first error.
func parallel(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for i := range n {
		g.Go(func() error { return fn(ctx, i) })
	}
	return g.Wait()
}
