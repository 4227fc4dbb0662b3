package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
)

// FeaturesPath is a znode of ours. Kafka's own, /feature, is never made: a broker of Kafka 3.9
// that finds levels in it which it does not have ends.
const (
	FeaturesPath = penstockPath + "/features"
	penstockPath = "/penstock"
)

// Abilities are the features that a broker can do, by name; none for a broker that names none.
type Abilities = map[string]FeatureRange

// FeatureRecords are what brokers could do when they were seen last, by id: those that live, and
// those that are away and have replicas. All are in one znode, which is read whole and
// written by its version, so that what is read was true at one time; one znode a broker
// would need a second reading of each to know that.
type FeatureRecords struct {
	Of map[int32]Abilities
	// Bad is why the znode cannot be understood, nil if it can. Nothing is known then of the
	// brokers that are away, and the znode is left as it is.
	Bad error

	version int32 // of the znode, -1 if there is none
	changed int64 // zxid of the last change, 0 if there is none
}

type featuresJSON struct {
	Version int                 `json:"version"`
	Brokers map[int32]Abilities `json:"brokers"`
}

const featuresVersion = 1

func encodeFeatures(of map[int32]Abilities) ([]byte, error) {
	j := featuresJSON{featuresVersion, map[int32]Abilities{}}
	for id, can := range of {
		if can == nil {
			can = Abilities{} // {}, not null
		}
		j.Brokers[id] = can
	}
	return json.Marshal(j)
}

func decodeFeatures(data []byte) (map[int32]Abilities, error) {
	var j featuresJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, fmt.Errorf("coordination: %s: %w", FeaturesPath, err)
	}
	if j.Version != featuresVersion || j.Brokers == nil {
		return nil, fmt.Errorf("coordination: %s: version %d, or no brokers", FeaturesPath, j.Version)
	}
	for id, can := range j.Brokers {
		if id < 0 {
			return nil, fmt.Errorf("coordination: %s: broker %d", FeaturesPath, id)
		}
		maps.DeleteFunc(can, func(_ string, r FeatureRange) bool { return r.Min < 0 || r.Max < r.Min })
	}
	return j.Brokers, nil
}

// FeatureRecords reads the records, none if nobody has written any. It arms the data watch of
// FeaturesPath. A content that makes no sense is no error, but told in Bad.
func (c *Client) FeatureRecords(ctx context.Context) (FeatureRecords, error) {
	data, st, err := c.Get(ctx, FeaturesPath)
	if errors.Is(err, ErrNoNode) {
		return FeatureRecords{Of: map[int32]Abilities{}, version: -1}, nil
	}
	if err != nil {
		return FeatureRecords{}, err
	}
	of, bad := decodeFeatures(data)
	return FeatureRecords{Of: of, Bad: bad, version: st.Version, changed: st.Mzxid}, nil
}

// WriteFeatureRecords writes what the records shall become if nobody has written them since they
// were read; otherwise the error is ErrBadVersion. A controller gives its fence, and
// gets ErrControllerMoved.
func (c *Client) WriteFeatureRecords(ctx context.Context, read FeatureRecords, next map[int32]Abilities, f *Fence) error {
	data, err := encodeFeatures(next)
	if err != nil {
		return err
	}
	if len(data) > maxTopicData {
		return fmt.Errorf("coordination: %s would have %d bytes", FeaturesPath, len(data))
	}
	op := SetOp(FeaturesPath, data, read.version)
	if read.version < 0 {
		if err := c.EnsurePath(ctx, penstockPath); err != nil {
			return err
		}
		op = CreateOp(FeaturesPath, data)
	}
	if f != nil {
		_, err = c.Fenced(ctx, *f, op)
	} else {
		_, err = c.Multi(ctx, op)
	}
	if errors.Is(err, ErrNodeExists) || errors.Is(err, ErrNoNode) {
		return fmt.Errorf("%w: %w", ErrBadVersion, err)
	}
	return err
}

// Contradicted gives what the records become by what is seen of the brokers that live, and
// whether that is anything new.
func (r FeatureRecords) Contradicted(live []Broker) (next map[int32]Abilities, changed bool) {
	next = maps.Clone(r.Of)
	for _, b := range live {
		if had, ok := next[b.ID]; !ok || !maps.Equal(had, b.Features) {
			next[b.ID], changed = b.Features, true
		}
	}
	return next, changed
}

// KnownBrokers are the brokers that live, and the records of all.
type KnownBrokers struct {
	Live    []Broker
	Records FeatureRecords
	// Version is the zxid of the last change of either: higher after each, and the same
	// for all who see the same.
	Version int64
}

// Abilities lists what each broker that counts can do: those that live, whatever their records
// say, and those that are away. Where the records cannot be read one of them is there that can
// do nothing.
func (k KnownBrokers) Abilities() []Abilities {
	var can []Abilities
	if k.Records.Bad != nil {
		can = append(can, nil)
	}
	live := map[int32]bool{}
	for _, b := range k.Live {
		live[b.ID] = true
		can = append(can, b.Features)
	}
	for id, had := range k.Records.Of {
		if !live[id] {
			can = append(can, had)
		}
	}
	return can
}

// KnownBrokers reads registrations and records as they were together at one time. It arms
// the watches of WatchKnownBrokers.
func (c *Client) KnownBrokers(ctx context.Context) (KnownBrokers, error) {
	for {
		session := c.SessionID()
		live, list, err := c.Registrations(ctx)
		if err != nil {
			return KnownBrokers{}, err
		}
		records, err := c.FeatureRecords(ctx)
		if err != nil {
			return KnownBrokers{}, err
		}
		// The list is as it was before the records were read, so it was that when they were read. Only
		// within a session does a server never show what is older than what it has shown.
		st, err := c.Exists(ctx, idsPath)
		if err != nil {
			return KnownBrokers{}, err
		}
		if st != nil && st.Pzxid == list && session != 0 && session == c.SessionID() {
			return KnownBrokers{live, records, max(list, records.changed)}, nil
		}
	}
}

// WatchKnownBrokers is WatchData for all that KnownBrokers reads, which arms it.
func (c *Client) WatchKnownBrokers(fn func()) (stop func()) {
	brokers, records := c.WatchBrokers(fn), c.WatchData(FeaturesPath, fn)
	return func() { brokers(); records() }
}
