package replication

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
)

// controllerStub answers AlterPartition as told, and keeps what it was sent.
type controllerStub struct {
	requests []*kmsg.AlterPartitionRequest
	at       []time.Time
	answer   func(n int, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error)
}

func (c *controllerStub) send(_ context.Context, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
	c.requests = append(c.requests, req)
	c.at = append(c.at, time.Now())
	return c.answer(len(c.requests), req)
}

func agree(req *kmsg.AlterPartitionRequest) *kmsg.AlterPartitionResponse {
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewAlterPartitionResponseTopic()
		rt.Topic, rt.TopidID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewAlterPartitionResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.ISR, rp.PartitionEpoch = p.Partition, p.LeaderEpoch, p.NewISR, p.PartitionEpoch+1
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

type outcome struct {
	r   partition.ISRResult
	err error
}

func change(topic string, n int32, id byte, out chan outcome) partition.ISRChange {
	return partition.ISRChange{
		TP: protocol.TopicPartition{Topic: topic, Partition: n}, TopicID: protocol.UUID{id}, LeaderEpoch: 3, PartitionEpoch: 7, ISR: []int32{1, 2}, Epochs: []int64{99, 41},
		Done: func(r partition.ISRResult, err error) { out <- outcome{r, err} },
	}
}

func TestISRChangesGoInBatchesOneRequestAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		c := &controllerStub{}
		c.answer = func(n int, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
			<-gate
			return agree(req), nil
		}
		s := NewISRSender(ISRConfig{BrokerID: 1, BrokerEpoch: func() int64 { return 99 }, Send: c.send})
		defer s.Close()
		out := make(chan outcome, 10)
		s.Submit(change("a", 0, 1, out))
		synctest.Wait()
		s.Submit(change("a", 1, 1, out))
		s.Submit(change("b", 0, 2, out))
		synctest.Wait()
		if len(c.requests) != 1 {
			t.Fatalf("%d requests in flight", len(c.requests))
		}
		gate <- struct{}{}
		synctest.Wait()
		if len(c.requests) != 2 || len(c.requests[1].Topics) != 2 {
			t.Fatalf("the second request must carry both topics: %+v", c.requests[1:])
		}
		gate <- struct{}{}
		synctest.Wait()
		if len(out) != 3 {
			t.Fatalf("%d answers", len(out))
		}
		if o := <-out; o.err != nil || o.r.PartitionEpoch != 8 {
			t.Errorf("got %+v", o)
		}
		if r := c.requests[0]; r.Version != 3 || r.BrokerEpoch != 99 || r.BrokerID != 1 {
			t.Errorf("request %+v", r)
		}
		if m := c.requests[0].Topics[0].Partitions[0].NewEpochISR; len(m) != 2 || m[1].BrokerID != 2 || m[1].BrokerEpoch != 41 {
			t.Errorf("the set with its members' lives: %+v", m)
		}
	})
}

func TestFailedISRRequestIsMadeAgainAfter50ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controllerStub{}
		c.answer = func(n int, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
			switch n {
			case 1:
				return nil, errors.New("no controller")
			case 2:
				resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
				resp.ErrorCode = kerr.NotController.Code
				return resp, nil
			case 3:
				return req.ResponseKind().(*kmsg.AlterPartitionResponse), nil // left out
			default:
				return agree(req), nil
			}
		}
		s := NewISRSender(ISRConfig{BrokerEpoch: func() int64 { return 1 }, Send: c.send})
		defer s.Close()
		out := make(chan outcome, 1)
		s.Submit(change("a", 0, 0, out))
		if o := <-out; o.err != nil {
			t.Fatal(o.err)
		}
		if len(c.at) != 4 || c.at[1].Sub(c.at[0]) != 50*time.Millisecond || c.at[3].Sub(c.at[2]) != 50*time.Millisecond {
			t.Errorf("sent at %v", c.at)
		}
		if c.requests[0].Version != 1 {
			t.Errorf("without a topic id the version must be 1, is %d", c.requests[0].Version)
		}
	})
}

func TestPartitionsErrorIsHandedToItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controllerStub{}
		c.answer = func(n int, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
			resp := agree(req)
			resp.Topics[0].Partitions[0].ErrorCode = kerr.FencedLeaderEpoch.Code
			return resp, nil
		}
		s := NewISRSender(ISRConfig{BrokerEpoch: func() int64 { return 1 }, Send: c.send})
		defer s.Close()
		out := make(chan outcome, 1)
		s.Submit(change("a", 0, 1, out))
		if o := <-out; !errors.Is(o.err, kerr.FencedLeaderEpoch) {
			t.Errorf("got %v", o.err)
		}
		time.Sleep(time.Second)
		if len(c.requests) != 1 {
			t.Errorf("%d requests: the sender must not retry by itself", len(c.requests))
		}
	})
}

// A controller of an older release gets the version that it has, and its answer is found by what
// that version names topics by.
func TestOlderControllerIsAskedInItsVersion(t *testing.T) {
	for _, version := range []int16{0, 1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			c := &controllerStub{answer: func(_ int, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
				req.SetVersion(version)
				asked := kmsg.NewPtrAlterPartitionRequest()
				asked.SetVersion(version)
				if err := asked.ReadFrom(req.AppendTo(nil)); err != nil {
					t.Fatal(err)
				}
				p := asked.Topics[0].Partitions[0]
				if version < 3 && !slices.Equal(p.NewISR, []int32{1, 2}) || version == 3 && len(p.NewEpochISR) != 2 {
					t.Errorf("version %d asks for %+v", version, p)
				}
				answered := agree(asked)
				resp := kmsg.NewPtrAlterPartitionResponse()
				resp.SetVersion(version)
				return resp, resp.ReadFrom(answered.AppendTo(nil))
			}}
			s := NewISRSender(ISRConfig{BrokerEpoch: func() int64 { return 1 }, Send: c.send})
			defer s.Close()
			out := make(chan outcome, 1)
			s.Submit(change("a", 0, 1, out))
			if o := <-out; o.err != nil || o.r.PartitionEpoch != 8 {
				t.Errorf("version %d: %+v", version, o)
			}
			if len(c.requests) != 1 {
				t.Errorf("version %d: asked %d times", version, len(c.requests))
			}
		})
	}
}
