package brokertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
	"penstock/tenants/usage"
)

// TestNearestReadsAreMeteredOnceAndLimited holds what brokers count against what a consumer got that was sent to the
// replica in its rack (KIP-392): its bytes, once, at the broker that served it. What replicas copy is nobody's
// egress, also where brokers and clients come in on one listener, as one principal. The consumer's quota holds at
// that replica, and holds no replica up.
func TestNearestReadsAreMeteredOnceAndLimited(t *testing.T) {
	for name, shared := range map[string]bool{"a listener of the brokers' own": false, "one listener for all": true} {
		t.Run(name, func(t *testing.T) { nearestReads(t, shared) })
	}
}

func nearestReads(t *testing.T, shared bool) {
	o := Options{Brokers: 3, Ports: 2, Settings: []string{
		"replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector", "replica.lag.time.max.ms=5000", "quota.window.num=2",
		"penstock.usage.enable=true", "penstock.usage.interval.ms=300", "penstock.usage.topic.replication.factor=3",
	}, Each: func(id int) []string { return []string{fmt.Sprintf("broker.rack=rack-%d", id)} },
		Listeners: func(_ int, p []int) []string {
			return []string{fmt.Sprintf("listeners=CLIENT://127.0.0.1:%d,BROKERS://127.0.0.1:%d", p[0], p[1]),
				"listener.security.protocol.map=CLIENT:PLAINTEXT,BROKERS:PLAINTEXT", "inter.broker.listener.name=BROKERS"}
		}}
	if shared {
		o.Ports, o.Listeners = 0, nil
	}
	c := Start(t, o)
	c.CreateTopic("ledger", 1, 3, "min.insync.replicas=3")
	c.AwaitWhole("ledger", 60*time.Second)
	leader := c.leader("ledger", 0)
	near := (leader + 1) % 3

	var written int64
	w := dialWire(t, c.Brokers[leader].Addr)
	produce := func(batches int) {
		t.Helper()
		frame := sized(t, 20_000)
		for range batches {
			req := produceOf("ledger", -1, frame)
			req.TimeoutMillis = 60_000
			resp, err := w.ask(req)
			if err != nil {
				t.Fatal(err)
			}
			if code := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
				t.Fatal(kerr.ErrorForCode(code))
			}
			written += int64(len(frame))
		}
	}
	// settled waits until the leader has published all that was written, and so what it had sent by then.
	settled := func() {
		t.Helper()
		Await(t, 60*time.Second, "usage being published", func() error {
			if in := c.Brokers[leader].counted(usage.In); in[leader] != written {
				return fmt.Errorf("%v in, want %d at broker %d", in, written, leader)
			}
			return nil
		})
	}
	produce(50) // every replica has it: min.insync.replicas=3
	settled()
	if out := c.Brokers[leader].counted(usage.Out); len(out) > 0 {
		t.Errorf("counted as egress when only replicas have read: %v", out)
	}

	rack := fmt.Sprintf("rack-%d", near)
	fetch := func(w *rawConn, offset int64) (*kmsg.FetchResponse, *kmsg.FetchResponseTopicPartition) {
		t.Helper()
		req := fetchFrom("ledger", offset, 100_000)
		req.Rack = rack
		resp, err := w.ask(req)
		if err != nil {
			t.Fatal(err)
		}
		r := resp.(*kmsg.FetchResponse)
		if len(r.Topics) == 0 {
			return r, nil
		}
		p := &r.Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(p.ErrorCode))
		}
		return r, p
	}
	if _, p := fetch(w, 0); p.PreferredReadReplica != near || len(p.RecordBatches) > 0 {
		t.Fatalf("the leader sends to %d, and %d bytes", p.PreferredReadReplica, len(p.RecordBatches))
	}
	reader := dialWire(t, c.Brokers[near].Addr)
	var read, offset int64
	for offset < 50 {
		_, p := fetch(reader, offset)
		read += int64(len(p.RecordBatches))
		offset += int64(len(p.RecordBatches)) / (written / 50)
	}
	if read != written {
		t.Fatalf("%d bytes were read, %d written", read, written)
	}
	produce(1)
	settled()
	Await(t, 60*time.Second, "the read being published", func() error {
		if out := c.Brokers[leader].counted(usage.Out); len(out) != 1 || out[near] != read {
			return fmt.Errorf("%v counted as egress, want %d at broker %d alone", out, read, near)
		}
		return nil
	})

	// The quota: of whoever is not named, so of this consumer and, on one listener, of the brokers.
	const rate = 50_000
	adm := kadm.NewClient(c.Client())
	quota := kadm.AlterClientQuotaEntry{Entity: kadm.ClientQuotaEntity{{Type: "user"}}, Ops: []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: rate}}}
	if rs, err := adm.AlterClientQuotas(context.Background(), []kadm.AlterClientQuotaEntry{quota}); err != nil || rs[0].Err != nil {
		t.Fatal(rs, err)
	}
	Await(t, 30*time.Second, "the follower limiting its consumer", func() error {
		if r, _ := fetch(reader, 0); r.ThrottleMillis == 0 {
			return fmt.Errorf("not throttled")
		}
		return nil
	})
	began, limited := time.Now(), int64(0)
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		for time.Since(began) < 6*time.Second { // acks=all of three: replicas that are held up hold this up
			produce(5)
		}
	}()
	before := written
	for time.Since(began) < 6*time.Second {
		if _, p := fetch(reader, 0); p != nil {
			limited += int64(len(p.RecordBatches))
		}
	}
	took := time.Since(began)
	<-produced
	if most := int64(rate*(took.Seconds()+2)) + 100_000; limited > most || limited == 0 {
		t.Errorf("a consumer limited to %d bytes/s got %d from the follower in %v", rate, limited, took)
	}
	copiedRate := float64(written-before) / took.Seconds()
	t.Logf("the follower gave its consumer %d bytes in %v at %d bytes/s, while replicas copied %.0f bytes/s", limited, took.Round(time.Millisecond), rate, copiedRate)
	if copiedRate < 1.5*rate {
		t.Errorf("replicas copied %.0f bytes/s only: too few to tell that they are not limited", copiedRate)
	}
}

// counted is what all brokers together have published of one direction, by broker, as it lies on the disk of one
// of them: to fetch it would be egress as well.
func (n *Node) counted(direction usage.Direction) map[int32]int64 {
	n.c.t.Helper()
	type counter struct {
		broker    int32
		boot      int64
		principal string
	}
	most := map[counter]int64{}
	segments, err := filepath.Glob(filepath.Join(n.LogDir, "__penstock_usage-*", "*.log"))
	if err != nil {
		n.c.t.Fatal(err)
	}
	for _, path := range segments {
		data, err := os.ReadFile(path)
		if err != nil {
			n.c.t.Fatal(err)
		}
		for b, err := range recordbatch.Split(data) {
			if err != nil { // the end of what is just being written
				break
			}
			if err := recordbatch.Records(b, func(r recordbatch.Record) error {
				u, err := usage.Decode(r.Value)
				if err != nil {
					return err
				}
				for _, e := range u.Entries {
					if e.Direction == direction {
						k := counter{u.Broker, u.BootEpoch, e.Principal}
						most[k] = max(most[k], e.Bytes)
					}
				}
				return nil
			}); err != nil {
				n.c.t.Fatal(err)
			}
		}
	}
	sum := map[int32]int64{}
	for k, bytes := range most {
		sum[k.broker] += bytes
	}
	return sum
}
