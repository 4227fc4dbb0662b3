package broker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/partition"
)

// shutDownPause is the longest wait between two tries to give leadership away. The
// usual reason to wait is a controller that is being elected, which takes less
// than Kafka's default pause of 5 s.
const shutDownPause = 200 * time.Millisecond

// shutDown asks the controller to move leadership away from this broker. An
// answer that some is left is asked for again as often as
// controlled.shutdown.max.retries says; no answer at all, as while a controller
// is being elected, for as long as all these tries may take by Kafka's settings,
// at most 10 s.
func (b *Broker) shutDown(ctx context.Context) error {
	if !b.cfg.ControlledShutdown || b.homeless.Load() { // then the end of the registration says it all
		return nil
	}
	var led []partition.TopicPartition
	for _, p := range b.partitions.Partitions() {
		if p.IsLeader() {
			led = append(led, p.TP())
		}
	}
	b.farewell.begin()
	pause := min(b.cfg.ControlledShutdownBackoff, shutDownPause)
	tries := max(1, b.cfg.ControlledShutdownRetries)
	ctx, cancel := context.WithTimeout(ctx, min(time.Duration(tries)*b.cfg.ControlledShutdownBackoff, 10*time.Second))
	defer cancel()
	var last error
	for tries > 0 && ctx.Err() == nil {
		left, err := b.askShutDown(ctx)
		if err == nil && left == 0 {
			b.left(ctx, led)
			return nil
		}
		if last = err; err == nil {
			last = fmt.Errorf("this broker still leads %d partitions", left)
			tries--
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	// Not an error of the stop: what is still led here, no other replica could
	// take over; it comes back with this broker.
	b.log.Warn("leadership could not be moved away before the stop", "error", last)
	return nil
}

// left parts from what was led here, once others do.
func (b *Broker) left(ctx context.Context, led []partition.TopicPartition) {
	inOffice := make(chan struct{})
	b.partitions.AwaitSuccessors(led, func() { close(inOffice) })
	select {
	case <-inOffice:
	case <-ctx.Done():
	}
	// This broker is in no in-sync set any more. Whatever it went on to copy, leaders would
	// propose it for theirs again, and acknowledge nothing that it lacks until the controller has
	// refused: for as long as nobody is controller, if that is this broker, too.
	b.fetchers.Close()
	if len(led) > 0 {
		b.farewell.wait(ctx)
	}
}

func (b *Broker) askShutDown(ctx context.Context) (left int, err error) {
	req := kmsg.NewPtrControlledShutdownRequest()
	req.SetVersion(3)
	req.BrokerID, req.BrokerEpoch = b.cfg.ID, b.epoch.Load()
	resp, err := b.controllers.Do(ctx, req)
	if err != nil {
		return 0, err
	}
	r := resp.(*kmsg.ControlledShutdownResponse)
	return len(r.PartitionsRemaining), kerr.ErrorForCode(r.ErrorCode)
}

// A broker that leads no more goes on serving until no client has come for farewellQuiet that
// did not know it, at most for farewellMax.
const (
	farewellQuiet = 100 * time.Millisecond
	farewellMax   = time.Second
)

// farewell is how a broker that stops parts from the clients of what it led. Each is
// told who leads now, and goes there at once; one whose connection ends instead
// has to find out by itself: a stock client may wait for seconds before it asks again.
// So the broker serves on for as long as there are clients to tell.
type farewell struct {
	begun atomic.Bool

	mu   sync.Mutex
	last time.Time
}

// begin says that the broker is about to stop.
func (f *farewell) begin() { f.begun.Store(true) }

// sentAway says that a client has come who took this broker for a leader.
func (f *farewell) sentAway() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = time.Now()
}

// parting says whether clients may come just now for what was led here a moment ago.
func (b *Broker) parting() bool { return b.farewell.begun.Load() || b.partitions.HandingOver() }

// sendAway gives a client the reply that this broker does not lead these partitions, once
// those who do are in office.
func (b *Broker) sendAway(of []partition.TopicPartition, reply func()) {
	b.partitions.AwaitSuccessors(of, func() {
		b.farewell.sentAway()
		reply()
	})
}

// wait returns when no client has been sent away for a while.
func (f *farewell) wait(ctx context.Context) {
	began := time.Now()
	for until := began.Add(farewellMax); ; {
		f.mu.Lock()
		last := f.last
		f.mu.Unlock()
		if last.Before(began) {
			last = began
		}
		now := time.Now()
		pause := min(last.Add(farewellQuiet).Sub(now), until.Sub(now))
		if pause <= 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
