package brokertest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestSlowReadersLeaveTheLogItsFiles has more slow readers than the process has files for:
// each takes a connection, and keeps the file open that its reply is sent from. Appends, which
// need new files, must go on: a failed open takes the folder offline, and here the broker with it.
// Readers that are too many are refused, the others get all.
func TestSlowReadersLeaveTheLogItsFiles(t *testing.T) {
	const files = 300
	c := Start(t, Options{Wrap: []string{"prlimit", fmt.Sprintf("--nofile=%d", files)}})
	const readers = files/2 - 10
	c.CreateTopic("wide", readers, 1)
	c.CreateTopic("orders", 1, 1, "segment.bytes=1048576")
	b := &target{addr: c.Brokers[0].Addr}
	w := b.dial(t)
	for p := range int32(readers) {
		for range 2 {
			req := produceTo(1, map[string]map[int32][]byte{"wide": {p: sized(t, 1_000_000)}})
			if got := codes(ask[*kmsg.ProduceResponse](w, req)); !slices.Equal(got, []int16{0}) {
				t.Fatalf("filling: %v", got)
			}
		}
	}
	var slow []*wire
	for p := range int32(readers) {
		s := b.dial(t)
		req := fetchOf("wide", p, 0)
		req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = 2<<20, 2<<20
		s.send(req)
		slow = append(slow, s)
	}
	for i := range 40 {
		if got := codes(ask[*kmsg.ProduceResponse](w, produceOf("orders", 1, sized(t, 800_000)))); !slices.Equal(got, []int16{0}) {
			t.Errorf("producing %d: %v, with %d files open", i, got, descriptors(t, c.Brokers[0]))
			break
		}
	}
	served := 0
	for p, s := range slow {
		resp, err := s.receive(fetchOf("wide", 0, 0))
		if err != nil {
			continue // refused
		}
		served++
		got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if got.ErrorCode != 0 || len(got.RecordBatches) < 1_000_000 {
			t.Errorf("reader %d: %v, %d bytes", p, kerr.ErrorForCode(got.ErrorCode), len(got.RecordBatches))
		}
	}
	if served < files/4 {
		t.Errorf("%d of %d readers were served", served, readers)
	}
}

// TestPollOfAClientThatIsGoneEnds: nobody reads from a connection whose poll is pending, so
// its end is not seen. A poll as long as a client likes would keep it for weeks.
func TestPollOfAClientThatIsGoneEnds(t *testing.T) {
	c := Start(t, Options{Settings: []string{"connections.max.idle.ms=3000"}})
	c.CreateTopic("quiet", 1, 1)
	n := c.Brokers[0]
	b := &target{addr: n.Addr}
	before := descriptors(t, n)
	for range 50 {
		w := b.dial(t)
		req := fetchOf("quiet", 0, 0)
		req.MaxWaitMillis, req.MinBytes = math.MaxInt32, math.MaxInt32
		w.send(req)
		w.Close()
	}
	Await(t, 15*time.Second, "the connections' end", func() error {
		if now := descriptors(t, n); now > before+20 {
			return fmt.Errorf("%d descriptors, %d before", now, before)
		}
		return nil
	})
}
