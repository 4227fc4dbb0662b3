package commitlog

import (
	"errors"
	"fmt"

	"penstock/dataplane/recordbatch"
)

// marker is what a control batch says about its producer's transaction.
type marker struct {
	abort            bool
	coordinatorEpoch int32
	timestamp        int64 // ms since 1970
}

// Key of a control record: int16 version, int16 type. Value of a marker: int16 version,
// int32 coordinator epoch. Later versions may add fields at the end.
const (
	controlAbort  = 0
	controlCommit = 1
)

// Marker is what ends a producer's transaction in a log (KIP-98).
type Marker struct {
	ProducerID    int64
	ProducerEpoch int16
	Committed     bool
	// CoordinatorEpoch is the leader epoch of the coordinator's partition of
	// __transaction_state; -1 if no coordinator but an administrator sends it.
	CoordinatorEpoch int32
	TimestampMs      int64
}

// Batch is the marker as a control batch, without an offset.
func (m Marker) Batch() (recordbatch.Batch, error) {
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.Transactional, o.Control = m.ProducerID, m.ProducerEpoch, true, true
	kind := uint16(controlAbort)
	if m.Committed {
		kind = controlCommit
	}
	key := be.AppendUint16(make([]byte, 2, 4), kind)
	value := be.AppendUint32(make([]byte, 2, 6), uint32(m.CoordinatorEpoch))
	return recordbatch.Build(o, []recordbatch.Record{{Timestamp: m.TimestampMs, Key: key, Value: value}})
}

var errFirst = errors.New("only the first record counts")

// ReadMarker reads a control batch: how it ends its producer's transaction, and not ok if it
// ends none.
func ReadMarker(b recordbatch.Batch) (committed, ok bool, err error) {
	m, ok, err := parseMarker(b)
	return ok && !m.abort, ok, err
}

// parseMarker reads a control batch; ok is false for one that ends no transaction:
// emptied by compaction, or of another kind.
func parseMarker(b recordbatch.Batch) (m marker, ok bool, err error) {
	err = recordbatch.Records(b, func(r recordbatch.Record) error {
		if len(r.Key) < 4 || int16(be.Uint16(r.Key)) < 0 {
			return fmt.Errorf("control record at offset %d has a bad key: %w", r.Offset, recordbatch.ErrCorrupt)
		}
		kind := be.Uint16(r.Key[2:])
		if kind > controlCommit {
			return errFirst
		}
		if len(r.Value) < 6 || int16(be.Uint16(r.Value)) < 0 {
			return fmt.Errorf("transaction marker at offset %d has a bad value: %w", r.Offset, recordbatch.ErrCorrupt)
		}
		m = marker{abort: kind == controlAbort, coordinatorEpoch: int32(be.Uint32(r.Value[2:])), timestamp: r.Timestamp}
		ok = true
		return errFirst
	})
	if errors.Is(err, errFirst) {
		err = nil
	}
	return m, ok, err
}
