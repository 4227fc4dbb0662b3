package partition

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
)

// BeginVerification notes that the transaction coordinator is about to be asked whether a
// producer's transaction has this partition in it (see commitlog.Log.BeginVerification). The
// zero guard says that nothing has to be asked. Errors: those of an append to a partition
// that this broker does not lead, INVALID_PRODUCER_EPOCH.
func (m *Manager) BeginVerification(tp TopicPartition, r commitlog.VerificationRequest) (commitlog.Guard, error) {
	p := m.Partition(tp)
	if p == nil {
		return 0, m.absent(tp)
	}
	p.state.Lock()
	err := p.serves([16]byte{})
	if err == nil && p.role != leader {
		err = kerr.NotLeaderForPartition
	}
	p.state.Unlock()
	if err != nil {
		return 0, err
	}
	return p.log().BeginVerification(r)
}

// EndVerification takes the coordinator's answer to what was asked under the guard.
func (m *Manager) EndVerification(tp TopicPartition, producerID int64, epoch int16, guard commitlog.Guard, verified bool) {
	p := m.Partition(tp)
	switch {
	case p == nil:
	case verified:
		p.log().Verified(producerID, epoch, guard)
	default:
		p.log().Refused(producerID, epoch, guard)
	}
}

// ActiveProducer is what a replica knows of a producer.
type ActiveProducer = commitlog.ActiveProducer

// Producers lists the producers that a replica knows (KIP-664), also on a follower. Errors:
// those of a replica that is not here.
func (m *Manager) Producers(tp TopicPartition) ([]ActiveProducer, error) {
	p := m.Partition(tp)
	if p == nil {
		return nil, m.absent(tp)
	}
	p.state.Lock()
	err := p.serves([16]byte{})
	p.state.Unlock()
	if err != nil {
		return nil, err
	}
	return p.log().Producers(), nil
}
