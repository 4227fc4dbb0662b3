package group

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/planted"
	"penstock/dataplane/protocol"
)

// Offsets committed in a transaction (KIP-98) are written when they come, as part of
// it, and are pending until the marker of its end is in the partition's log: with the
// marker of a commit they count, from the place where they were written. What was
// written of the same partition after them, in another transaction or in none, is
// newer; a tombstone takes with it all that is pending and older. The loader follows
// the same rules by the same code, so a coordinator that loads the log knows what the
// one before it knew.

// transaction is what a producer's transaction has committed for one group.
type transaction struct {
	writes map[protocol.TopicPartition][]pendingOffset // by age
	end    coordinator.TransactionEnd                  // NotAnEnd while it is open
	bytes  int64                                       // of all that was written, until its end
}

// pendingOffset is one commit in a transaction. Of those that are stored only the last
// one of a partition is kept.
type pendingOffset struct {
	offset
	stored bool // the storage has answered
}

// openTransactions says which groups of a partition a producer has pending offsets
// in. Its mutex may be taken while a group's is held.
type openTransactions struct {
	sh *shard

	mu      sync.Mutex
	groups  map[int64]map[*group]struct{} // by producer
	loading bool
	ended   []transactionEnd // while loading
}

type transactionEnd struct {
	producer  int64
	committed bool
}

// openIn is the table of the shard; nil if the shard is over.
func (c *Coordinator) openIn(sh *shard) *openTransactions {
	c.openMu.Lock()
	defer c.openMu.Unlock()
	if o := c.open[sh.Partition()]; o != nil && o.sh == sh {
		return o
	}
	return nil
}

// beginOpen makes the table of a shard that is being loaded.
func (c *Coordinator) beginOpen(sh *shard) {
	c.openMu.Lock()
	defer c.openMu.Unlock()
	c.open[sh.Partition()] = &openTransactions{sh: sh, loading: true, groups: make(map[int64]map[*group]struct{})}
}

func (o *openTransactions) add(producer int64, g *group) {
	o.mu.Lock()
	defer o.mu.Unlock()
	gs := o.groups[producer]
	if gs == nil {
		gs = make(map[*group]struct{})
		o.groups[producer] = gs
	}
	gs[g] = struct{}{}
}

func (o *openTransactions) remove(producer int64, g *group) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if gs := o.groups[producer]; gs != nil {
		if delete(gs, g); len(gs) == 0 {
			delete(o.groups, producer)
		}
	}
}

// take forgets the producer and lists its groups. While the shard is being loaded it
// only notes the end: the marker may lie behind what is being read.
func (o *openTransactions) take(e transactionEnd) []*group {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.loading {
		o.ended = append(o.ended, e)
		return nil
	}
	return o.takeLocked(e.producer)
}

func (o *openTransactions) takeLocked(producer int64) []*group {
	var gs []*group
	for g := range o.groups[producer] {
		gs = append(gs, g)
	}
	delete(o.groups, producer)
	return gs
}

// loaded ends the loading: what has ended meanwhile is carried out, in order.
func (o *openTransactions) loaded() {
	for {
		o.mu.Lock()
		if len(o.ended) == 0 {
			o.loading = false
			o.mu.Unlock()
			return
		}
		e := o.ended[0]
		o.ended = o.ended[1:]
		gs := o.takeLocked(e.producer)
		o.mu.Unlock()
		endIn(gs, e)
	}
}

// EndTransaction says that the marker which ends the producer's transaction in this
// partition of __consumer_offsets is committed: what the transaction has committed of
// offsets counts when it returns, or is forgotten. It has to be called before whoever
// sent the marker is answered, since only then may the producer begin its next
// transaction. A partition that this broker does not lead is ignored: its next leader
// reads the marker.
func (c *Coordinator) EndTransaction(partition int32, producerID int64, committed bool) {
	c.openMu.Lock()
	o := c.open[partition]
	c.openMu.Unlock()
	if o == nil {
		return
	}
	e := transactionEnd{producerID, committed}
	endIn(o.take(e), e)
}

func endIn(groups []*group, e transactionEnd) {
	for _, g := range groups {
		g.do(func(fx *effects) {
			g.endTransaction(e.producer, e.committed)
			g.forgetIfIdle(fx)
		})
	}
}

// CommitInTransaction handles TxnOffsetCommit (versions 0 to 5; the member's own
// checks from version 3, KIP-447). done is called exactly once, when the storage has
// answered; the offsets count once the transaction is committed, see EndTransaction.
// That the partition belongs to the transaction, that the topics exist and may be read
// is the caller's to check.
func (c *Coordinator) CommitInTransaction(req *kmsg.TxnOffsetCommitRequest, done func(*kmsg.TxnOffsetCommitResponse)) {
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	resp.Version = req.Version
	cm := c.newCommit(req.Group, req.MemberID, req.InstanceID, req.Generation, req.Version)
	cm.producer = coordinator.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	if req.Version < 3 { // these came without
		cm.memberID, cm.instanceID, cm.generation = "", nil, -1
	}
	resp.Topics = make([]kmsg.TxnOffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, rt := &req.Topics[i], &resp.Topics[i]
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p, rp := &t.Partitions[j], &rt.Partitions[j]
			rp.Partition = p.Partition
			epoch := int32(-1)
			if req.Version >= 2 {
				epoch = p.LeaderEpoch
			}
			cm.add(t.Topic, p.Partition, p.Offset, epoch, str(p.Metadata), &rp.ErrorCode)
		}
	}
	cm.done = func() { done(resp) }
	if req.ProducerID < 0 || req.ProducerEpoch < 0 {
		cm.finish(kerr.InvalidProducerIDMapping)
		return
	}
	c.commit(cm)
}

// hold notes a commit in a transaction. The topic must not alias a request.
func (g *group) hold(producer int64, topic string, o offset, stored bool) *transaction {
	tx := g.open[producer]
	if tx == nil {
		tx = &transaction{writes: make(map[protocol.TopicPartition][]pendingOffset)}
		g.open[producer] = tx
	}
	tp := protocol.TopicPartition{Topic: topic, Partition: o.partition}
	ws, held := tx.writes[tp]
	if !held {
		g.unstable[tp]++
	}
	if stored {
		ws = withoutStored(ws)
	}
	tx.writes[tp] = append(ws, pendingOffset{o, stored})
	cost := o.size() + 2*partitionCost + int64(len(topic)) // also in unstable
	tx.bytes += cost
	g.openBytes += cost
	return tx
}

// withoutStored drops the writes that a newer one, stored, has overtaken.
func withoutStored(ws []pendingOffset) []pendingOffset {
	kept := ws[:0]
	for _, w := range ws {
		if !w.stored {
			kept = append(kept, w)
		}
	}
	return kept
}

// settle takes the storage's answer to a commit in the transaction.
func (g *group) settle(tx *transaction, producer int64, topic string, o offset, ok bool) {
	tp := protocol.TopicPartition{Topic: topic, Partition: o.partition}
	ws := tx.writes[tp]
	at := -1
	for i, w := range ws {
		if w.seq == o.seq {
			at = i
		}
	}
	if at < 0 {
		return
	}
	keep := ok && tx.end == coordinator.NotAnEnd && o.seq >= g.buried[tp]
	if ok && tx.end == coordinator.Committed {
		g.apply(topic, o)
	}
	for _, w := range ws[at+1:] {
		keep = keep && !w.stored
	}
	if !keep {
		ws = append(ws[:at], ws[at+1:]...)
	} else {
		newer := ws[at+1:]
		ws[at].stored = true
		ws = append(append(withoutStored(ws[:at:at]), ws[at]), newer...)
	}
	g.keepWrites(tx, producer, tp, ws)
}

// keepWrites makes ws all that the transaction has of the partition.
func (g *group) keepWrites(tx *transaction, producer int64, tp protocol.TopicPartition, ws []pendingOffset) {
	if len(ws) > 0 {
		tx.writes[tp] = ws
		return
	}
	delete(tx.writes, tp)
	if tx.end != coordinator.NotAnEnd {
		return
	}
	g.stabler(tp)
	if len(tx.writes) == 0 {
		delete(g.open, producer)
		g.openBytes -= tx.bytes
		if o := g.openTransactions(); o != nil {
			o.remove(producer, g)
		}
	}
}

// stabler counts one transaction less that has something of the partition.
func (g *group) stabler(tp protocol.TopicPartition) {
	if g.unstable[tp]--; g.unstable[tp] == 0 {
		delete(g.unstable, tp)
	}
}

// supersede takes out what is pending and older than a tombstone.
func (g *group) supersede(tp protocol.TopicPartition, seq uint64) {
	if g.inFlight[tp] > 0 {
		g.buried[tp] = max(g.buried[tp], seq) // for those of which the storage has still to answer
	}
	if g.unstable[tp] == 0 {
		return
	}
	for producer, tx := range g.open {
		ws, held := tx.writes[tp]
		if !held {
			continue
		}
		kept := ws[:0]
		for _, w := range ws {
			if !w.stored || w.seq > seq {
				kept = append(kept, w)
			}
		}
		g.keepWrites(tx, producer, tp, kept)
	}
}

// endTransaction makes the producer's pending offsets count, or forgets them. One that
// the storage has not answered is decided when it does.
func (g *group) endTransaction(producer int64, committed bool) {
	tx := g.open[producer]
	if tx == nil {
		return
	}
	delete(g.open, producer)
	g.openBytes -= tx.bytes
	tx.end = coordinator.Aborted
	if committed {
		tx.end = coordinator.Committed
	}
	for tp, ws := range tx.writes {
		g.stabler(tp)
		for _, w := range ws {
			if w.stored && (committed && planted.Bug != planted.OffsetsLost || planted.Bug == planted.OffsetsOfAborted) {
				g.apply(tp.Topic, w.offset)
			}
			if planted.Bug == planted.OffsetsBack && !committed {
				w.offset.offset = max(0, w.offset.offset-100)
				g.apply(tp.Topic, w.offset)
			}
		}
		if ws = withoutStored(ws); len(ws) == 0 {
			delete(tx.writes, tp)
		} else {
			tx.writes[tp] = ws
		}
	}
}

// apply makes the offset count, unless something newer does.
func (g *group) apply(topic string, o offset) {
	tp := protocol.TopicPartition{Topic: topic, Partition: o.partition}
	if o.seq < g.buried[tp] {
		return
	}
	if old := g.offsets.get(topic, o.partition); old == nil || old.seq <= o.seq {
		g.offsets.put(topic, o)
	}
}

// dropTransactions forgets what is pending; the group is over.
func (g *group) dropTransactions() {
	if o := g.openTransactions(); o != nil {
		for producer := range g.open {
			o.remove(producer, g)
		}
	}
	clear(g.open)
	g.openBytes = 0
	clear(g.unstable)
}

func (g *group) openTransactions() *openTransactions {
	if g.c == nil {
		return nil // a group of its own, in a test
	}
	return g.c.openIn(g.sh)
}
