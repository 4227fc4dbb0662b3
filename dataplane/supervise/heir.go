package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"penstock/dataplane/coordination/zksession"
	"penstock/internal/process"
)

// lastWords bounds how long the supervisor's own end waits for the end of its
// broker's session: without a ZooKeeper that answers it would be the timeout.
const lastWords = 2 * time.Second

// heir starts brokers and ends the sessions of those that have died. Its start and
// event are called by the keeper, one at a time.
type heir struct {
	c   Config
	box *zksession.Box // of the broker that runs; nil without one

	ctx    context.Context // of what is being ended
	cancel context.CancelFunc
	ending sync.WaitGroup
}

func newHeir(c Config) *heir {
	h := &heir{c: c}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

func (h *heir) start() (*process.Child, error) {
	spec := process.Spec{
		Path: h.c.Binary, Args: h.c.Args,
		Stdout: h.c.Stdout, Stderr: h.c.Stderr,
		DeathSignal: syscall.SIGKILL,
	}
	box, err := zksession.NewBox()
	if err != nil { // the broker can do without
		h.c.Logger.Warn("a broker that dies will be missed only when its ZooKeeper session times out", "err", err)
	} else {
		spec.Files = []*os.File{box.File()}
		spec.Env = append(os.Environ(), zksession.Variable(3))
	}
	child, err := process.Start(spec)
	if err != nil {
		_ = box.Close()
		return nil, err
	}
	h.box = box
	return child, nil
}

// event ends the session of a broker that has been reaped. After a clean stop the
// broker has done it itself, and there is nothing left to do.
func (h *heir) event(e process.Event) {
	if e.Kind != process.Died && e.Kind != process.Stopped || h.box == nil {
		return
	}
	box := h.box
	h.box = nil
	defer box.Close()
	s, ok, err := box.Get()
	if err != nil {
		h.c.Logger.Error("the dead broker's ZooKeeper session is not known; it will time out", "err", err)
	}
	if !ok {
		return
	}
	h.ending.Go(func() {
		ctx, cancel := context.WithTimeout(h.ctx, s.Timeout) // by then ZooKeeper has ended it
		defer cancel()
		began := time.Now()
		switch err := zksession.End(ctx, s); {
		case err == nil:
			h.c.Logger.Info("ended the dead broker's ZooKeeper session", "pid", e.ID.PID, "session", fmt.Sprintf("%#x", s.ID), "took", time.Since(began))
		case errors.Is(err, zksession.ErrOver):
		default:
			h.c.Logger.Warn("could not end the dead broker's ZooKeeper session; it will time out", "pid", e.ID.PID, "session", fmt.Sprintf("%#x", s.ID), "err", err)
		}
	})
}

// wait waits for the sessions' ends that are under way.
func (h *heir) wait(atMost time.Duration) {
	defer time.AfterFunc(atMost, h.cancel).Stop()
	h.ending.Wait()
	h.cancel()
}
