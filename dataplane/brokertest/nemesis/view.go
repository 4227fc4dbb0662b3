package nemesis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// TP is a partition of a topic.
type TP struct {
	Topic     string
	Partition int32
}

func (at TP) String() string { return fmt.Sprintf("%s-%d", at.Topic, at.Partition) }

// View is what one client knows of the topics: who leads, under which epoch. An
// older epoch than one it has seen is news from somebody who is behind.
type View struct {
	Client *kgo.Client

	mu      sync.Mutex
	leaders map[TP]lead
}

type lead struct {
	id    int32
	epoch int32
}

// NewView asks the brokers at their doors, one request at a time and connection.
// Versions are those that name topics, not their ids.
func NewView(seeds []string) (*View, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MaxVersions(kversion.V2_8_0()), kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(2*time.Second),
		kgo.RetryTimeout(2*time.Second), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second))
	if err != nil {
		return nil, err
	}
	return &View{Client: cl, leaders: map[TP]lead{}}, nil
}

// Refresh asks any broker about these topics.
func (v *View) Refresh(ctx context.Context, topics []string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, v.Client)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			at := TP{*t.Topic, p.Partition}
			if old, ok := v.leaders[at]; !ok || p.LeaderEpoch >= old.epoch {
				v.leaders[at] = lead{p.Leader, p.LeaderEpoch}
			}
		}
	}
	return nil
}

// Led is what a broker leads, as far as this view knows.
func (v *View) Led(by int32) map[TP]int32 {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := map[TP]int32{}
	for at, l := range v.leaders {
		if l.id == by {
			m[at] = l.epoch
		}
	}
	return m
}

// Ask sends a request to one broker, once.
func Ask[R kmsg.Response](ctx context.Context, cl *kgo.Client, broker int32, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	resp, err := cl.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		var none R
		return none, err
	}
	r, ok := resp.(R)
	if !ok {
		err = errors.New("another kind of response")
	}
	return r, err
}

// Wait waits, or until the context is over.
func Wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
