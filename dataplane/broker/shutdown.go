package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
	led := slices.ContainsFunc(b.partitions.Partitions(), (*partition.Partition).IsLeader)
	pause := min(b.cfg.ControlledShutdownBackoff, shutDownPause)
	tries := max(1, b.cfg.ControlledShutdownRetries)
	ctx, cancel := context.WithTimeout(ctx, min(time.Duration(tries)*b.cfg.ControlledShutdownBackoff, 10*time.Second))
	defer cancel()
	var last error
	for tries > 0 && ctx.Err() == nil {
		b.farewell.hold()
		tooLong := time.AfterFunc(farewellHold, b.farewell.release)
		left, err := b.askShutDown(ctx)
		tooLong.Stop()
		b.farewell.release()
		if err == nil && left == 0 {
			if led {
				b.farewell.wait(ctx)
			}
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

// Answers are held back for farewellHold at most, while leaders move. A broker that
// leads no more then goes on serving until no client has come for farewellQuiet that
// did not know it, at most for farewellMax.
const (
	farewellHold  = 3 * time.Second
	farewellQuiet = 100 * time.Millisecond
	farewellMax   = time.Second
)

// farewell is how a broker that stops parts from the clients of what it led. Each is
// told who leads now, and goes there at once. One that is told too early finds a
// leader that does not know of its office yet, and one whose connection ends instead
// has to find out by itself: a stock client may wait for seconds before it asks again.
// So while the leaders move, such answers are held back until the new ones are in
// office; after it the broker serves on for as long as there are clients to tell.
type farewell struct {
	mu      sync.Mutex
	holding bool
	held    []func() // no more than requests are under way at once
	last    time.Time
}

// sendAway is called with the reply to a client that takes this broker for a leader.
func (f *farewell) sendAway(reply func()) {
	f.mu.Lock()
	f.last = time.Now()
	if f.holding {
		f.held = append(f.held, reply)
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	reply()
}

// hold keeps such replies back until release.
func (f *farewell) hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding = true
}

func (f *farewell) release() {
	f.mu.Lock()
	held := f.held
	f.holding, f.held = false, nil
	f.mu.Unlock()
	for _, reply := range held {
		reply()
	}
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
