package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
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
	epoch := agreed(t, "features of three brokers", 2, -1, c.Brokers...)
	c.Brokers[2].Kill()
	epoch = agreed(t, "features after a broker's death", 2, epoch, c.Brokers[:2]...)
	c.Brokers[2].Start()
	agreed(t, "features after its return", 2, epoch, c.Brokers...)
}
