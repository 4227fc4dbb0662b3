package txn

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// AddPartitions handles one transaction of AddPartitionsToTxn (versions 0 to 5; those
// before 4 have only one). It adds the partitions, all or none, or with VerifyOnly says
// of each whether it is part of the transaction (KIP-890). done is called exactly once,
// with an error code for each partition, in their order.
//
// Errors: INVALID_REQUEST (no id), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
// COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED
// (INVALID_PRODUCER_EPOCH before version 2), CONCURRENT_TRANSACTIONS; and when it only
// verifies TRANSACTION_ABORTABLE for a partition that is not part of it.
func (c *Coordinator) AddPartitions(version int16, req *kmsg.AddPartitionsToTxnRequestTransaction, done func(kmsg.AddPartitionsToTxnResponseTransaction)) {
	p := coordinator.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	var tps []protocol.TopicPartition
	for _, t := range req.Topics {
		for _, n := range t.Partitions {
			tps = append(tps, protocol.TopicPartition{Topic: t.Topic, Partition: n})
		}
	}
	reply := func(errOf func(protocol.TopicPartition) *kerr.Error) {
		done(addResponse(req, func(tp protocol.TopicPartition) int16 { return code(older(errOf(tp), version, 2)) }))
	}
	all := func(err *kerr.Error) { reply(func(protocol.TopicPartition) *kerr.Error { return err }) }
	if req.VerifyOnly {
		in, err := c.verify(req.TransactionalID, p)
		if err != nil {
			all(err)
			return
		}
		reply(func(tp protocol.TopicPartition) *kerr.Error {
			if _, ok := in[tp]; !ok {
				return kerr.TransactionAbortable
			}
			return nil
		})
		return
	}
	client := int16(0)
	if version >= 5 {
		client = epochBump
	}
	c.add(req.TransactionalID, p, tps, client, all)
}

// addResponse has the shape of the request.
func addResponse(req *kmsg.AddPartitionsToTxnRequestTransaction, codeOf func(protocol.TopicPartition) int16) kmsg.AddPartitionsToTxnResponseTransaction {
	resp := kmsg.NewAddPartitionsToTxnResponseTransaction()
	resp.TransactionalID = req.TransactionalID
	for _, t := range req.Topics {
		rt := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
		rt.Topic = t.Topic
		for _, n := range t.Partitions {
			rp := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
			rp.Partition, rp.ErrorCode = n, codeOf(protocol.TopicPartition{Topic: t.Topic, Partition: n})
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// AddOffsets handles AddOffsetsToTxn (versions 0 to 4): it adds the partition of
// __consumer_offsets that keeps the group's offsets, which the caller knows. done is
// called exactly once. The errors are those of AddPartitions.
func (c *Coordinator) AddOffsets(req *kmsg.AddOffsetsToTxnRequest, partition int32, done func(*kmsg.AddOffsetsToTxnResponse)) {
	version := req.Version
	tps := []protocol.TopicPartition{{Topic: protocol.OffsetsTopic, Partition: partition}}
	c.add(req.TransactionalID, coordinator.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}, tps, 0, func(err *kerr.Error) {
		resp := kmsg.NewPtrAddOffsetsToTxnResponse()
		resp.Version, resp.ErrorCode = version, code(older(err, version, 2))
		done(resp)
	})
}

func (c *Coordinator) add(id string, p coordinator.Producer, tps []protocol.TopicPartition, client int16, reply func(*kerr.Error)) {
	if id == "" {
		reply(kerr.InvalidRequest)
		return
	}
	err := c.with(id, func(t *transaction, fx *effects) {
		t.attempt(fx, func(fx *effects, late bool) bool { return t.add(fx, p, tps, client, reply, late) }, reply)
	})
	if err != nil {
		reply(err)
	}
}

// is says whether the producer is the one that has the id now.
func (t *transaction) is(p coordinator.Producer) *kerr.Error {
	switch {
	case p.ID != t.producerID:
		return kerr.InvalidProducerIDMapping
	case p.Epoch != t.epoch:
		return kerr.ProducerFenced
	}
	return nil
}

// add is a step.
func (t *transaction) add(fx *effects, p coordinator.Producer, tps []protocol.TopicPartition, client int16, reply func(*kerr.Error), late bool) (wait bool) {
	err := t.is(p)
	switch {
	case err != nil:
	case t.pending && !late:
		return true
	case t.pending:
		err = kerr.ConcurrentTransactions
	case t.state == stateOngoing && t.parts.hasAll(tps):
	default:
		next := t.meta
		next.updated = nowMillis()
		if t.state != stateOngoing {
			next.start, next.parts = next.updated, nil
		}
		next.state, next.parts, next.client = stateOngoing, next.parts.with(tps), client
		t.write(fx, next, func(fx *effects, err *kerr.Error) { fx.call(func() { reply(err) }) })
		return false
	}
	fx.call(func() { reply(err) })
	return false
}

// verify gives the partitions of the producer's transaction. Whether something is pending
// does not matter: the append that is asked for is checked again in its log.
func (c *Coordinator) verify(id string, p coordinator.Producer) (in partitions, err *kerr.Error) {
	if id == "" {
		return nil, kerr.InvalidRequest
	}
	var refused *kerr.Error
	err = c.with(id, func(t *transaction, _ *effects) {
		refused = t.is(p)
		switch {
		case refused != nil:
		case t.state.prepared():
			refused = kerr.ConcurrentTransactions
		default:
			in = t.parts
		}
	})
	if err == nil {
		err = refused
	}
	return in, err
}
