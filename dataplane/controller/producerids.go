package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AllocateProducerIDs gives a broker the next block of producer ids (KIP-730,
// version 0). Kafka's brokers ask the controller for them; ours take them from
// ZooKeeper by themselves, from the same znode.
//
// Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, REQUEST_TIMED_OUT.
func (c *Controller) AllocateProducerIDs(ctx context.Context, req *kmsg.AllocateProducerIDsRequest) *kmsg.AllocateProducerIDsResponse {
	resp := req.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	err := c.call(ctx, func(t *term) error {
		if b, ok := t.st.brokers[req.BrokerID]; !ok || b.Epoch != req.BrokerEpoch {
			return kerr.StaleBrokerEpoch
		}
		return nil
	})
	if err == nil {
		block, zerr := c.cfg.ZK.NextProducerIDBlock(ctx, req.BrokerID)
		resp.ProducerIDStart, resp.ProducerIDLen = block.First, int32(block.Last-block.First+1)
		err = c.ended(zerr)
	}
	if err != nil {
		resp.ProducerIDStart, resp.ProducerIDLen, resp.ErrorCode = -1, 0, codeOf(err)
	}
	return resp
}
