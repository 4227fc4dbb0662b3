package brokertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

// toldFeatures are what a broker tells clients of transaction.version: the level in force
// in the cluster, 0 if none is, and the epoch of that.
func (n *Node) toldFeatures(t *testing.T) (level int16, epoch int64, err error) {
	req := at(kmsg.NewPtrApiVersionsRequest(), 4)
	req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
	resp := ask[*kmsg.ApiVersionsResponse]((&target{addr: n.Addr}).dial(t), req)
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			level = f.MaxVersionLevel
		}
	}
	return level, resp.FinalizedFeaturesEpoch, kerr.ErrorForCode(resp.ErrorCode)
}

// agreed waits until these brokers tell this level, all with one epoch, which it returns.
func agreed(t *testing.T, what string, level int16, above int64, nodes ...*Node) (epoch int64) {
	t.Helper()
	Await(t, 30*time.Second, what, func() error {
		epoch = -1
		for _, n := range nodes {
			l, e, err := n.toldFeatures(t)
			if err != nil {
				return err
			}
			if l != level || e <= above || epoch >= 0 && e != epoch {
				return fmt.Errorf("broker %d tells level %d of epoch %d, wanted %d above %d, as the others have it", n.ID, l, e, level, above)
			}
			epoch = e
		}
		return nil
	})
	return epoch
}

func TestBrokersAgreeOnFeatures(t *testing.T) {
	c := threeBrokers(t)
	c.createOn("t", 3, []int32{0, 1, 2})
	epoch := agreed(t, "features of three brokers", 2, -1, c.Brokers...)
	c.Brokers[2].Kill()
	epoch = agreed(t, "features after a broker's death", 2, epoch, c.Brokers[:2]...)
	c.Brokers[2].Start()
	agreed(t, "features after its return", 2, epoch, c.Brokers...)
}

// A broker of another make holds the features down while it lives, while it is away, over
// everything that may happen to ours meanwhile, until it has no replicas. Its part is
// played by a registration without a process.
func TestFeaturesWaitForABrokerThatWillBeBack(t *testing.T) {
	c := threeBrokers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	zk := c.zookeeper(ctx)
	var life int64
	arrive := func() {
		t.Helper()
		var err error
		life, err = zk.RegisterBroker(ctx, coordination.Broker{ID: 7, JMXPort: -1, Endpoints: []coordination.Endpoint{
			{Listener: "PLAINTEXT", SecurityProtocol: "PLAINTEXT", Host: "127.0.0.1", Port: 1}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	leave := func() {
		t.Helper()
		if err := zk.UnregisterBroker(ctx, 7, life); err != nil {
			t.Fatal(err)
		}
	}
	epoch := agreed(t, "features of ours", 2, -1, c.Brokers...)
	arrive()
	epoch = agreed(t, "features beside another make", 0, epoch, c.Brokers...)
	leave()
	epoch = agreed(t, "features after a broker without replicas has gone", 2, epoch, c.Brokers...)

	arrive()
	epoch = agreed(t, "features beside another make again", 0, epoch, c.Brokers...)
	c.createOn("t", 1, []int32{0, 7})
	leave()
	epoch = agreed(t, "features while it is away", 0, epoch, c.Brokers...)
	for _, n := range c.Brokers { // the controller among them
		n.Kill()
		n.Start()
		n.AwaitServing()
		epoch = agreed(t, fmt.Sprintf("features after the death of broker %d", n.ID), 0, epoch, c.Brokers...)
	}
	restart := func(what string, meanwhile func()) {
		t.Helper()
		for _, n := range c.Brokers {
			n.Kill()
		}
		meanwhile()
		for _, n := range c.Brokers {
			n.Launch()
		}
		for _, n := range c.Brokers {
			n.AwaitServing()
		}
		epoch = agreed(t, what, 0, epoch, c.Brokers...)
	}
	restart("features after the death of all", func() {})
	// As if none of ours had ever seen it: its replica speaks for it.
	restart("features beside a broker that nobody has seen", func() {
		if err := zk.Delete(ctx, coordination.FeaturesPath, -1); err != nil {
			t.Fatal(err)
		}
	})
	c.moveTo("t", 1, []int32{0, 1})
	c.awaitMoved("t")
	epoch = agreed(t, "features when it has no replicas", 2, epoch, c.Brokers...)
	arrive()
	epoch = agreed(t, "features when it is back", 0, epoch, c.Brokers...)
	leave()
	agreed(t, "features when it has gone for good", 2, epoch, c.Brokers...)
}
