package handler

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/metadata"
	"penstock/dataplane/protocol"
)

// imageOf has that many topics of 100 partitions with three replicas on three brokers.
func imageOf(tb testing.TB, topics int) *metadata.Cache {
	tb.Helper()
	cache := metadata.NewCache("c")
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.Version, req.ControllerID, req.ControllerEpoch = 8, 1, 1
	for id := range int32(3) {
		b := kmsg.NewUpdateMetadataRequestLiveBroker()
		b.ID = id
		e := kmsg.NewUpdateMetadataRequestLiveBrokerEndpoint()
		e.Host, e.Port, e.ListenerName = "broker.example.org", 9092, "PLAINTEXT"
		b.Endpoints = append(b.Endpoints, e)
		req.LiveBrokers = append(req.LiveBrokers, b)
	}
	for i := range topics {
		ts := kmsg.NewUpdateMetadataRequestTopicState()
		ts.Topic, ts.TopicID = fmt.Sprintf("topic-%05d", i), protocol.UUID{1, byte(i), byte(i >> 8)}
		for p := range int32(100) {
			s := kmsg.NewUpdateMetadataRequestTopicPartition()
			s.Partition, s.Leader, s.LeaderEpoch = p, p%3, 7
			s.Replicas, s.ISR = []int32{p % 3, (p + 1) % 3, (p + 2) % 3}, []int32{p % 3, (p + 1) % 3, (p + 2) % 3}
			ts.PartitionStates = append(ts.PartitionStates, s)
		}
		req.TopicStates = append(req.TopicStates, ts)
	}
	if _, err := cache.Apply(req); err != nil {
		tb.Fatal(err)
	}
	return cache
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMetadataOfAllTopics is one request for everything, from the socket and back. cpu-us/op is the
// processor's time, whatever else the machine does.
func BenchmarkMetadataOfAllTopics(b *testing.B) {
	for _, topics := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("partitions=%d", topics*100), func(b *testing.B) {
			p := newHotPath(b, imageOf(b, topics))
			p.buf = make([]byte, 64<<20)
			req := kmsg.NewPtrMetadataRequest()
			req.Version, req.Topics = 12, nil
			frame := kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
			size := p.call(frame)
			b.ReportAllocs()
			b.ResetTimer()
			began := cpu()
			for b.Loop() {
				p.call(frame)
			}
			b.ReportMetric(float64((cpu()-began).Microseconds())/float64(b.N), "cpu-us/op")
			b.ReportMetric(float64(size), "reply-B")
		})
	}
}
