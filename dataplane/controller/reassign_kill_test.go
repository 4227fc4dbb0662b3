package controller

import (
	"context"
	"slices"
	"testing"
)

// The controller ends after each of its writes in turn, with the reply lost. Whoever comes
// next brings the reassignment to the same end.
func TestReassignmentSurvivesItsControllerAtEveryStep(t *testing.T) {
	t.Parallel()
	for step := 1; ; step++ {
		if done := reassignmentKilledAt(t, step); done {
			if step < 5 {
				t.Fatalf("only %d writes", step-1)
			}
			return
		}
	}
}

func reassignmentKilledAt(t *testing.T, step int) (done bool) {
	c := newCluster(t, 1, 2, 3, 4)
	first := c.start(8).control()
	ctl := c.awaitController(8)
	c.start(9).control()
	c.create(ctl, "t", []int32{1, 2}, []int32{2, 1})
	tp := part("t", 0)
	cut := first.proxy.CutAfter(step)
	calls, end := context.WithCancel(c.ctx) // to the first controller, which ends with it
	defer end()
	active := func() (context.Context, *Controller) {
		if calls.Err() == nil {
			return calls, ctl
		} else if next := c.brokers[9].ctl; next.Active() {
			return c.ctx, next
		}
		return c.ctx, nil
	}
	over := make(chan struct{})
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		select {
		case <-cut:
			end()
			first.kill()
		case <-over:
		}
	}()
	defer func() { close(over); <-killed }()
	c.free("asked", func() bool { // until ZooKeeper has it: from then on nobody has to ask again
		ctx, ctl := active()
		if a, err := c.zk.Topic(c.ctx, "t"); err != nil || len(a.Of(0).Adding) > 0 {
			return err == nil
		}
		return ctl != nil && c.wish(ctx, ctl, tp, 3, 4) == nil
	})
	c.free("in sync, or done", func() bool {
		a, err := c.zk.Topic(c.ctx, "t")
		ctx, ctl := active()
		return err == nil && slices.Equal(a.Of(0).Replicas, []int32{3, 4}) || c.tryJoin(ctx, ctl, tp, []int32{3, 4})
	})
	c.awaitAssignment("t", 0, 3, 4)
	c.await("deleted and led", func() bool {
		for _, id := range []int32{1, 2} {
			if _, ok := c.brokers[id].leads[tp]; ok {
				return false
			}
		}
		return c.brokers[3].leads[tp].Leader == 3 && c.brokers[4].leads[tp].Leader == 3 && c.brokers[1].deleted[tp] > 0 && c.brokers[2].deleted[tp] > 0
	})
	if s := c.state("t", 0); s.Leader != 3 || !slices.Equal(s.ISR, []int32{3, 4}) {
		t.Fatalf("step %d: %+v", step, s)
	}
	select {
	case <-cut:
		return false
	default:
		return true
	}
}
