package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest"
	"penstock/dataplane/brokertest/nemesis"
)

// TestClockMoves asks a broker for the time, by a topic of LogAppendTime.
func TestClockMoves(t *testing.T) {
	if !*clock && !*bites {
		t.Skip("without -chaos.clock")
	}
	binary, err := nemesis.BuildWithClock(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := brokertest.Start(t, brokertest.Options{Binary: binary})
	c.CreateTopic("times", 1, 1, "message.timestamp.type=LogAppendTime")
	cl := c.Client(kgo.DefaultProduceTopic("times"), kgo.ConsumeTopics("times"))
	for _, by := range []time.Duration{0, 3 * time.Hour, -2 * time.Hour, 0} {
		if err := nemesis.SetClock(c.Brokers[0], by); err != nil {
			t.Fatal(err)
		}
		brokertest.Await(t, 10*time.Second, fmt.Sprint("a clock that is off by ", by), func() error {
			if err := cl.ProduceSync(context.Background(), kgo.StringRecord("when")).FirstErr(); err != nil {
				return err
			}
			read := cl.PollFetches(context.Background()).Records()
			if off := time.Until(read[len(read)-1].Timestamp) - by; off.Abs() > time.Minute {
				return fmt.Errorf("off by %v", off)
			}
			return nil
		})
	}
}
