package brokertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/coordination"
)

// zookeeper is an onlooker's connection to the cluster's znodes.
func (c *Cluster) zookeeper(ctx context.Context) *coordination.Client {
	c.t.Helper()
	zk, err := coordination.Connect(ctx, coordination.Config{Connect: c.ZK.Addr() + c.chroot, SessionTimeout: 60 * time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(zk.Close)
	return zk
}

// TestBrokerCutOffFromZooKeeperLearnsWhatItMissed: a topic's setting changes while a
// broker cannot reach ZooKeeper, and the notification is gone before it is back, as
// after a quarter of an hour; with its session still there, and with it lost.
func TestBrokerCutOffFromZooKeeperLearnsWhatItMissed(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Proxies: true, Settings: []string{"zookeeper.session.timeout.ms=30000"}})
	c.CreateTopic("t", 1, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	zk, n := c.zookeeper(ctx), c.Brokers[0]
	for _, tc := range []struct {
		limit  string
		lost   bool // its session
		expect *kerr.Error
	}{{"200", false, kerr.MessageTooLarge}, {"200000", true, nil}, {"200", true, kerr.MessageTooLarge}} {
		n.ZK.Cut()
		if tc.lost {
			n.ZK.Expire(t)
		}
		if err := zk.ChangeConfig(ctx, "topics/t", func(now map[string]string) (map[string]string, error) {
			now["max.message.bytes"] = tc.limit
			return now, nil
		}); err != nil {
			t.Fatal(err)
		}
		notes, err := zk.Children(ctx, coordination.ConfigChangesPath)
		if err != nil {
			t.Fatal(err)
		}
		for _, note := range notes {
			if err := zk.Delete(ctx, coordination.ConfigChangesPath+"/"+note, -1); err != nil {
				t.Fatal(err)
			}
		}
		n.ZK.Heal()
		Await(t, 30*time.Second, "the limit of "+tc.limit+" in force", func() error {
			got := produce(dialBroker(t, n.Addr), "t", sized(t, 1000)).ErrorCode
			if err := kerr.ErrorForCode(got); err != nil && err != tc.expect || err == nil && tc.expect != nil {
				return fmt.Errorf("answered %v", err)
			}
			return nil
		})
	}
}
