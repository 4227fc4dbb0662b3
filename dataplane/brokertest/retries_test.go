package brokertest

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A client that heard nothing of its last five batches before the broker went sends
// them again to the broker that is back.
func TestRetriesAreKnownAfterARestart(t *testing.T) {
	retriesAfterRestarts(t, Options{}, nil)
}

// retriesAfterRestarts sends five batches again after each kind of stop; all but the
// last are answered with the error.
func retriesAfterRestarts(t *testing.T, o Options, earlier *kerr.Error) {
	c := Start(t, o)
	n := c.Brokers[0]
	c.CreateTopic("t", 1, 1)
	at := &target{addr: n.Addr}
	ready := func(p *idempotent) {
		t.Helper()
		Await(t, time.Minute, "a leader", func() error {
			if got := produce(p.w, "t", p.batch(1000, "far ahead")); !errors.Is(kerr.ErrorForCode(got.ErrorCode), kerr.OutOfOrderSequenceNumber) {
				return kerr.ErrorForCode(got.ErrorCode)
			}
			return nil
		})
	}
	p := newIdempotent(t, at, "t")
	Await(t, time.Minute, "the first batch", func() error { return kerr.ErrorForCode(produce(p.w, "t", p.batch(0, "0")).ErrorCode) })
	for i := range int32(6) {
		p.try("first time", 1+i, 1, nil, int64(1+i))
	}
	retry := func(what string) {
		t.Helper()
		p = &idempotent{at.dial(t), "t", p.id, p.epoch}
		ready(p)
		for i := range int32(4) {
			p.try(what, 2+i, 1, earlier, int64(2+i))
		}
		p.try(what, 6, 1, nil, 6)
	}
	n.Kill()
	n.Start()
	retry("after a kill")
	n.Stop()
	n.Start()
	retry("after a stop")
}
