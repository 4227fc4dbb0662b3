package handler

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestControllerRequestsWaitForTheRegistration sends what is meant for the life
// before and what is meant for this one to a broker that has no epoch yet.
func TestControllerRequestsWaitForTheRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		own := int64(-1)
		registered := make(chan struct{})
		h := New(ctx, Deps{BrokerEpoch: func() int64 { return own }, Registered: registered, Logger: slog.New(slog.DiscardHandler)})
		old, now := make(chan error, 1), make(chan error, 1)
		go func() { old <- h.forThisLife(41) }()
		go func() { now <- h.forThisLife(42) }()
		synctest.Wait()
		select {
		case err := <-old:
			t.Fatalf("answered before there is an epoch: %v", err)
		case err := <-now:
			t.Fatalf("answered before there is an epoch: %v", err)
		default:
		}
		own = 42
		close(registered)
		if err := <-old; !errors.Is(err, kerr.StaleBrokerEpoch) {
			t.Errorf("for the life before: %v", err)
		}
		if err := <-now; err != nil {
			t.Errorf("for this life: %v", err)
		}

		h.Registered = make(chan struct{})
		go func() { old <- h.forThisLife(41) }()
		synctest.Wait()
		stop()
		if err := <-old; !errors.Is(err, kerr.BrokerNotAvailable) {
			t.Errorf("at the stop: %v", err)
		}
	})
}
