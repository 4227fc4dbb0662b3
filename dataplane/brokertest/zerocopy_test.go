package brokertest

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// TestZeroCopyASegmentDeletedDuringASlowReadIsSentWhole lets a reader stand still in
// the middle of a reply while its topic is deleted and the files are removed. Others
// are served meanwhile, and the reply goes on from the very file.
func TestZeroCopyASegmentDeletedDuringASlowReadIsSentWhole(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Settings: []string{"log.segment.delete.delay.ms=0"}})
	c.CreateTopic("doomed", 1, 1)
	c.CreateTopic("other", 1, 1)
	b := c.Brokers[0]
	fill(t, c, "doomed", 20_000, 1000) // more than the socket's buffers hold
	slow := dialBroker(t, b.Addr)
	_ = slow.Conn.(*net.TCPConn).SetReadBuffer(32 << 10)
	req := fetchFrom("doomed", 0, 50<<20)
	slow.send(req)
	if _, err := slow.r.Peek(1000); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := kadm.NewClient(c.Client()).DeleteTopics(ctx, "doomed"); err != nil {
		t.Fatal(err)
	}
	for left := 1; left > 0; time.Sleep(20 * time.Millisecond) { // a folder has no event to await
		dirs, err := filepath.Glob(filepath.Join(b.LogDir, "doomed-*"))
		if err != nil || ctx.Err() != nil {
			t.Fatal("the topic's files are still there", err)
		}
		left = len(dirs)
	}
	quick := dialBroker(t, b.Addr)
	quick.send(produceOf("other", 1, batch(t, "meanwhile")))
	if _, err := quick.receive(produceOf("other", 1, nil)); err != nil {
		t.Fatal(err)
	}
	resp, err := slow.receive(req)
	if err != nil {
		t.Fatal(err)
	}
	p := &resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	n := int64(0)
	for rest := p.RecordBatches; len(rest) > 0; {
		var got recordbatch.Batch
		if got, rest, err = recordbatch.Next(rest); err != nil {
			t.Fatal(err)
		}
		if got.BaseOffset() != n || got.CRC() != got.ComputeCRC() {
			t.Fatalf("batch at offset %d where %d is due, checksum %08x of %08x", got.BaseOffset(), n, got.CRC(), got.ComputeCRC())
		}
		n = got.NextOffset()
	}
	if n != p.HighWatermark || n != 20_000 {
		t.Errorf("%d records of %d have come", n, p.HighWatermark)
	}
}
