package brokertest

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestThrottledReplicaCatchesUpSlowly bounds a follower that is behind by the dynamic settings
// of the leader's broker, then of its own (KIP-73), while producers go on with the replicas in
// sync, and lifts a bound so low that it would never end.
func TestThrottledReplicaCatchesUpSlowly(t *testing.T) {
	c := Start(t, Options{Brokers: 3, Settings: []string{"zookeeper.session.timeout.ms=1500", "zookeeper.connection.timeout.ms=20000", "replica.lag.time.max.ms=2000"}})
	c.CreateTopic("slow", 1, 3, "min.insync.replicas=2", "leader.replication.throttled.replicas=*", "follower.replication.throttled.replicas=*")
	c.AwaitWhole("slow", 30*time.Second)
	leader := c.leader("slow", 0)
	behind := c.Brokers[(leader+1)%3]
	cl := c.Client(kgo.DefaultProduceTopic("slow"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	admin := kadm.NewClient(cl)
	set := func(id int32, key string, op kadm.IncrementalOp, value string) {
		t.Helper()
		got, err := admin.AlterBrokerConfigs(context.Background(), []kadm.AlterConfig{{Op: op, Name: key, Value: &value}}, id)
		if err != nil {
			t.Fatal(key, err)
		}
		for _, r := range got {
			if r.Err != nil {
				t.Fatal(key, r.Err)
			}
		}
	}

	fallBehind := func() {
		t.Helper()
		behind.Kill()
		for range 14 {
			if err := cl.ProduceSync(context.Background(), kgo.SliceRecord(bytes.Repeat([]byte("v"), 900_000))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, side := range []struct {
		key string
		on  int32
	}{{"leader.replication.throttled.rate", leader}, {"follower.replication.throttled.rate", behind.ID}} {
		set(side.on, side.key, kadm.SetConfig, "2000000")
		fallBehind()
		start := time.Now()
		behind.Start()
		if err := cl.ProduceSync(context.Background(), kgo.StringRecord("in between")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		between := time.Since(start)
		c.AwaitWhole("slow", time.Minute)
		d := time.Since(start)
		t.Logf("%s: whole after %v, a record was acknowledged after %v", side.key, d.Round(10*time.Millisecond), between.Round(time.Millisecond))
		// A second's worth and a fetch come at once.
		if d < 4500*time.Millisecond {
			t.Errorf("%s: 12 MB at 2 MB a second took %v", side.key, d)
		}
		if between > d {
			t.Errorf("%s: a producer waited for the throttled replica", side.key)
		}
		set(side.on, side.key, kadm.DeleteConfig, "")
	}
	set(leader, "leader.replication.throttled.rate", kadm.SetConfig, "1")
	fallBehind()
	behind.Start()
	set(leader, "leader.replication.throttled.rate", kadm.DeleteConfig, "")
	c.AwaitWhole("slow", 30*time.Second)
	c.sameLogs("slow")
}
