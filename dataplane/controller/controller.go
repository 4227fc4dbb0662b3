package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/coordination"
)

// Controller takes part in the election and does the controller's work while
// it has won. All exported methods may be called from any goroutine.
type Controller struct {
	cfg Config
	log *slog.Logger

	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc
	stopped chan struct{}
	started atomic.Bool
	unwatch func()

	queue   eventQueue
	adminMu sync.Mutex // held while a topic's config and assignment are created

	notBefore time.Time // no election before this; the loop's

	id   atomic.Int32         // of the controller as last read, -1 unknown
	term atomic.Pointer[term] // nil when this broker is not the controller; written by the loop
}

// New checks the config and fills in its defaults; nothing runs yet.
func New(cfg Config) (*Controller, error) {
	if cfg.ZK == nil || cfg.Dial == nil {
		return nil, errors.New("controller: ZK and Dial are required")
	}
	if cfg.RebalanceInterval <= 0 {
		cfg.RebalanceInterval = 300 * time.Second
	}
	if cfg.ImbalancePercent <= 0 {
		cfg.ImbalancePercent = 10
	}
	if cfg.RebalanceDelay <= 0 {
		cfg.RebalanceDelay = 5 * time.Second
	}
	if cfg.NumPartitions <= 0 {
		cfg.NumPartitions = 1
	}
	if cfg.ReplicationFactor <= 0 {
		cfg.ReplicationFactor = 1
	}
	if cfg.MaxPartitionsPerRequest <= 0 {
		cfg.MaxPartitionsPerRequest = 10_000
	}
	if cfg.UncleanLeaderElection == nil {
		cfg.UncleanLeaderElection = func() bool { return false }
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Controller{cfg: cfg, log: log, stopped: make(chan struct{}), unwatch: func() {}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.queue.init()
	c.id.Store(-1)
	return c, nil
}

// Start takes part in the election. The broker must be registered, and its hook
// for new sessions (which registers it again) must have been added before: the
// controller adds its own, which comes after it. Start returns when the first
// election is over, whoever has won it; if ctx ends before, the controller is
// stopped and ctx's error returned.
func (c *Controller) Start(ctx context.Context) error {
	if c.started.Swap(true) {
		return errors.New("controller: started twice")
	}
	c.cfg.ZK.OnExpired(func() {
		if t := c.term.Load(); t != nil {
			t.cancel() // stops writes that are under way; the fence would, too
		}
		c.queue.post("expired", func() error { c.drop("session expired"); return nil })
	})
	c.cfg.ZK.OnSession(func(context.Context) error {
		c.queue.post("elect", c.elect)
		return nil
	})
	c.unwatch = c.cfg.ZK.WatchData(coordination.ControllerPath, func() { c.queue.post("elect", c.elect) })
	first := make(chan struct{})
	c.queue.post("", func() error {
		defer close(first)
		return c.elect()
	})
	go c.run()
	select {
	case <-first:
		return nil
	case <-ctx.Done():
		c.Stop()
		return ctx.Err()
	}
}

// Stop resigns, so that another broker is elected at once, and waits for every
// goroutine.
func (c *Controller) Stop() {
	c.cancel()
	if c.started.Load() {
		<-c.stopped
	}
}

// Active says whether this broker is the controller, as far as it knows.
func (c *Controller) Active() bool { return c.term.Load() != nil }

// ID is the controller's broker id as last seen in ZooKeeper, -1 when there is
// none.
func (c *Controller) ID() int32 { return c.id.Load() }

// Epoch is the controller epoch of this broker's term, -1 when it is not the
// controller.
func (c *Controller) Epoch() int32 {
	if t := c.term.Load(); t != nil {
		return t.fence.Epoch
	}
	return -1
}

// term is one election won.
type term struct {
	c      *Controller
	fence  coordination.Fence
	ctx    context.Context // ends with the term
	cancel context.CancelFunc
	st     *state

	senders map[int32]*sender
	stops   []func() // watches and timers
	// stopTimer stops the rebalance timer.
	stopTimer func()
	waiters   []*waiter

	wg sync.WaitGroup // senders
}

// run is the loop.
func (c *Controller) run() {
	defer close(c.stopped)
	for {
		ev, ok := c.queue.take(c.ctx)
		if !ok {
			break
		}
		if err := c.handle(ev); err != nil {
			c.failed(err)
		}
		if t := c.term.Load(); t != nil {
			t.checkWaiters()
		}
	}
	c.unwatch()
	if t := c.term.Load(); t != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		if err := c.cfg.ZK.ResignController(ctx, t.fence); err != nil {
			c.log.Warn("could not give the controllership back", "err", err)
		}
		cancel()
		c.drop("stopping")
	}
	c.queue.close()
}

// handle runs one event. A bug in it costs this term, not the broker: the next
// term starts from what ZooKeeper has.
func (c *Controller) handle(ev event) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("controller: panic: %v\n%s", r, debug.Stack())
		}
	}()
	return ev()
}

// failed ends the term after an error: what is in memory may no longer be what
// is in ZooKeeper.
func (c *Controller) failed(err error) {
	t := c.term.Load()
	if c.ctx.Err() != nil {
		return
	}
	switch {
	case errors.Is(err, coordination.ErrControllerMoved):
		c.log.Warn("another controller has been elected; resigning")
	case errors.Is(err, coordination.ErrExpired), errors.Is(err, context.Canceled):
		c.log.Warn("controller step was cut off by the end of the session", "err", err)
	default:
		c.log.Error("controller step failed; starting over", "err", err)
		if t != nil {
			ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
			c.cfg.ZK.ResignController(ctx, t.fence) // failing, the session's end or the fence will do it
			cancel()
		}
	}
	c.drop("step failed")
	// Let another broker try first, and do not spin if all of them fail.
	c.notBefore = time.Now().Add(time.Second)
	c.after(time.Second, "elect", c.elect)
}

// after posts an event later, unless the controller has stopped by then.
func (c *Controller) after(d time.Duration, key string, ev event) (stop func()) {
	tm := time.AfterFunc(d, func() { c.queue.post(key, ev) })
	return func() { tm.Stop() }
}

// elect looks who is controller and tries to become it if nobody is.
func (c *Controller) elect() error {
	ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	if d := time.Until(c.notBefore); d > 0 {
		c.after(d, "elect", c.elect)
		return nil
	}
	id, err := c.cfg.ZK.ControllerID(ctx)
	if err != nil {
		return err
	}
	t := c.term.Load()
	if t != nil {
		// The znode's id alone does not tell our terms apart.
		epoch, err := c.cfg.ZK.ControllerEpoch(ctx)
		if err != nil {
			return err
		}
		if id == c.cfg.BrokerID && epoch == t.fence.Epoch {
			return nil
		}
		c.drop("controller znode moved")
	}
	if id >= 0 {
		if id != c.cfg.BrokerID {
			c.id.Store(id)
			return nil
		}
		c.log.Info("removing the controller znode of an earlier term of this broker")
		if err := c.cfg.ZK.ForgetController(ctx, id); err != nil {
			return err
		}
	}
	fence, other, won, err := c.cfg.ZK.ElectController(ctx, c.cfg.BrokerID)
	if err != nil {
		return err
	}
	c.id.Store(other)
	if !won {
		return nil
	}
	c.log.Info("elected controller", "epoch", fence.Epoch)
	t = &term{c: c, fence: fence, st: newState(), senders: map[int32]*sender{}, stopTimer: func() {}}
	t.ctx, t.cancel = context.WithCancel(c.ctx)
	c.term.Store(t)
	return t.failover()
}

// drop ends the term in memory.
func (c *Controller) drop(why string) {
	t := c.term.Load()
	if t == nil {
		return
	}
	c.log.Info("no longer controller", "epoch", t.fence.Epoch, "why", why)
	c.term.Store(nil)
	c.id.CompareAndSwap(c.cfg.BrokerID, -1)
	t.cancel()
	t.stopTimer()
	for _, stop := range t.stops {
		stop()
	}
	for _, tc := range t.st.topics {
		tc.unwatch()
	}
	for _, s := range t.senders {
		s.cancel()
	}
	t.wg.Wait()
	for _, w := range t.waiters {
		w.done <- kerr.NotController
	}
	t.waiters = nil
}

// post queues an event of this term; it does nothing once the term is over.
func (t *term) post(key string, ev event) {
	if key != "" {
		key = fmt.Sprint(t.fence.Epoch, " ", key)
	}
	t.c.queue.post(key, func() error {
		if t.c.term.Load() != t {
			return nil
		}
		return ev()
	})
}

// call runs fn in the loop and waits for it. It is NOT_CONTROLLER when this
// broker is not, or ceases to be meanwhile.
func (c *Controller) call(ctx context.Context, fn func(t *term) error) error {
	if !c.Active() {
		return kerr.NotController
	}
	done := make(chan error, 1)
	if !c.queue.post("", func() error {
		t := c.term.Load()
		if t == nil || ctx.Err() != nil {
			done <- kerr.NotController
			return nil
		}
		finished := false
		defer func() { // also when fn panics
			if !finished {
				done <- kerr.UnknownServerError
			}
		}()
		err := fn(t)
		finished = true
		var ke *kerr.Error
		if err == nil || errors.As(err, &ke) {
			done <- err
			return nil
		}
		done <- notController(err)
		return err // ZooKeeper's: ends the term
	}) {
		return kerr.NotController
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stopped:
		return kerr.NotController
	}
}

// notController is what a caller is told about an error that ends the term: to
// look for the new controller and to try again there.
func notController(err error) error {
	if errors.Is(err, coordination.ErrControllerMoved) || errors.Is(err, coordination.ErrExpired) || errors.Is(err, context.Canceled) {
		return kerr.NotController
	}
	return fmt.Errorf("%w: %w", kerr.NotController, err)
}
