package group

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/planted"
	"penstock/dataplane/protocol"
)

// commit is an OffsetCommit or TxnOffsetCommit on its way through the group.
type commit struct {
	c          *Coordinator
	group      string
	memberID   string
	instanceID *string
	generation int32
	version    int16
	producer   coordinator.Producer // NoProducer outside of transactions
	expires    int64                // ms since 1970 or noExpiry, of all its offsets

	writes []commitWrite
	codes  []*int16 // where the answer to each partition goes, refused ones too
	done   func()
}

type commitWrite struct {
	topic string
	offset
	code *int16 // where its answer goes
}

func (w *commitWrite) tp() protocol.TopicPartition {
	return protocol.TopicPartition{Topic: w.topic, Partition: w.partition}
}

func (c *Coordinator) newCommit(group, memberID string, instanceID *string, generation int32, version int16) *commit {
	return &commit{c: c, group: group, memberID: memberID, instanceID: instanceID, generation: generation, version: version,
		producer: coordinator.NoProducer, expires: noExpiry}
}

func (cm *commit) transactional() bool { return cm.producer != coordinator.NoProducer }

// add takes in one partition's offset; code becomes its answer. Topics come one after
// the other.
func (cm *commit) add(topic string, partition int32, at int64, epoch int32, metadata string, code *int16) {
	cm.codes = append(cm.codes, code)
	if len(metadata) > cm.c.cfg.MaxOffsetMetadataSize {
		*code = kerr.OffsetMetadataTooLarge.Code
		return
	}
	if n := len(cm.writes); n > 0 && cm.writes[n-1].topic == topic {
		topic = cm.writes[n-1].topic
	} else {
		topic = strings.Clone(topic)
	}
	w := commitWrite{topic, offset{offset: at, epoch: epoch, partition: partition}, code}
	w.annotate(strings.Clone(metadata), cm.expires)
	cm.writes = append(cm.writes, w)
}

// finish answers all that has no error of its own.
func (cm *commit) finish(err *kerr.Error) {
	for _, c := range cm.codes {
		if *c == 0 {
			*c = code(err)
		}
	}
	cm.done()
}

// commit carries the request out; its answer comes when the storage has answered.
func (c *Coordinator) commit(cm *commit) {
	// A group that we do not know comes to be by the commit of a consumer that
	// assigns its partitions itself.
	err := c.with(cm.group, cm.generation < 0, func(g *group, fx *effects) {
		if g == nil {
			cm.finish(cm.unknownGroup())
			return
		}
		if err := g.mayCommit(cm); err != nil {
			g.forgetIfIdle(fx)
			fx.call(func() { cm.finish(err) })
			return
		}
		g.write(fx, cm)
	})
	if err != nil {
		cm.finish(err)
	}
}

// unknownGroup is what a member of a group that is not there is told; version 9 of
// OffsetCommit came with the error that says so (KIP-848).
func (cm *commit) unknownGroup() *kerr.Error {
	if cm.version >= 9 && !cm.transactional() {
		return kerr.GroupIDNotFound
	}
	return kerr.IllegalGeneration
}

// mayCommit says whether the request comes from a member of the present
// generation, or from outside of a group without members. A transaction of a producer
// that does not say for whom it commits (before KIP-447) is taken at any time, and in a
// transaction a member may commit before it has its assignment: the marker, not the
// rebalance, decides when the offset counts.
func (g *group) mayCommit(cm *commit) *kerr.Error {
	if g.deleting {
		return kerr.CoordinatorNotAvailable
	}
	if g.consumer != nil {
		return g.consumerMayCommit(cm)
	}
	if cm.generation < 0 && g.state == stateEmpty || planted.Bug == planted.NoFencing {
		return nil
	}
	if cm.generation < 0 && cm.memberID == "" && cm.instanceID == nil {
		if cm.transactional() {
			return nil
		}
		return kerr.UnknownMemberID
	}
	m, err := g.member(cm.memberID, cm.instanceID)
	switch {
	case err != nil:
		return err
	case cm.generation != g.generation:
		return kerr.IllegalGeneration
	case cm.transactional():
		return nil
	case g.state == stateCompleting:
		return kerr.RebalanceInProgress
	}
	g.keepAlive(m)
	return nil
}

// write has the offsets stored.
func (g *group) write(fx *effects, cm *commit) {
	taken, kept := int64(0), cm.writes[:0]
	for i := range cm.writes {
		w := cm.writes[i]
		more, ok := g.hasRoomForOffset(&w, cm.transactional(), taken)
		if !ok {
			*w.code = kerr.CoordinatorNotAvailable.Code
			continue
		}
		taken, kept = taken+more, append(kept, w)
	}
	cm.writes = kept
	if len(cm.writes) == 0 {
		g.forgetIfIdle(fx)
		fx.call(func() { cm.finish(nil) })
		return
	}
	now := time.Now().UnixMilli()
	recs := make([]coordinator.Record, len(cm.writes))
	for i := range cm.writes {
		w := &cm.writes[i]
		g.seq++
		w.committed, w.seq = now, g.seq
		recs[i] = offsetRecord(g.id, w.topic, &w.offset)
	}
	var tx *transaction
	for i := range cm.writes {
		w := &cm.writes[i]
		g.inFlight[w.tp()]++
		if cm.transactional() {
			tx = g.hold(cm.producer.ID, w.topic, w.offset, false)
		}
	}
	if tx != nil {
		if o := g.openTransactions(); o != nil {
			o.add(cm.producer.ID, g)
		}
	}
	if planted.Bug == planted.CommitsInMemory {
		fx.call(func() { g.do(func(fx *effects) { g.written(fx, cm, tx, nil) }) })
		return
	}
	g.appendBatch(fx, coordinator.Batch{Records: recs, Producer: cm.producer}, func(fx *effects, err error) { g.written(fx, cm, tx, err) })
}

// written takes the storage's answer. Answers may come in another order than the
// writes were issued in.
func (g *group) written(fx *effects, cm *commit, tx *transaction, err error) {
	if err != nil {
		g.c.cfg.Logger.Warn("offsets not stored", "group", g.id, "err", err)
	}
	if g.state != stateDead {
		for i := range cm.writes {
			w := &cm.writes[i]
			switch {
			case tx != nil:
				// What is in the log in spite of an error counts with the
				// marker, which comes after it in the same log.
				g.settle(tx, cm.producer.ID, w.topic, w.offset, err == nil || inLogAllTheSame(err))
			case err == nil:
				g.apply(w.topic, w.offset)
			}
			tp := w.tp()
			if g.inFlight[tp]--; g.inFlight[tp] == 0 {
				delete(g.inFlight, tp)
				delete(g.buried, tp)
			}
			if err != nil {
				g.doubtful[tp] = struct{}{}
			} else if tx == nil {
				delete(g.doubtful, tp) // it is among the offsets now
			}
		}
	}
	fx.call(func() { cm.finish(commitError(err)) })
}
