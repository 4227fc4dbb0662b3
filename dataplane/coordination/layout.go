package coordination

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Paths that are watched from outside this package.
const (
	BrokersPath        = idsPath
	TopicsPath         = "/brokers/topics"
	ControllerPath     = "/controller"
	DeleteTopicsPath   = "/admin/delete_topics"
	PreferredPath      = "/admin/preferred_replica_election"
	ISRChangesPath     = "/isr_change_notification"
	LogDirEventsPath   = "/log_dir_event_notification"
	ConfigChangesPath  = "/config/changes"
	ACLChangesPath     = "/kafka-acl-changes"
	ExtACLChangesPath  = "/kafka-acl-extended-changes"
	controllerEpoch    = "/controller_epoch"
	clusterIDPath      = "/cluster/id"
	producerIDPath     = "/latest_producer_id_block"
	producerIDBlock    = 1000
	configChangePrefix = ConfigChangesPath + "/config_change_"
)

// persistentPaths are what Kafka makes at start (ZkData.PersistentZkPaths and
// those of the authorizer).
var persistentPaths = []string{
	"/consumers", idsPath, TopicsPath, ConfigChangesPath, DeleteTopicsPath, "/brokers/seqid",
	ISRChangesPath, producerIDPath, LogDirEventsPath,
	"/config/topics", "/config/clients", "/config/users", "/config/brokers", "/config/ips",
	"/kafka-acl", ACLChangesPath, "/kafka-acl-extended", ExtACLChangesPath,
}

// EnsureLayout makes the persistent znodes that every broker expects.
func (c *Client) EnsureLayout(ctx context.Context) error {
	return parallel(ctx, len(persistentPaths), func(ctx context.Context, i int) error {
		return c.EnsurePath(ctx, persistentPaths[i])
	})
}

// ClusterID returns the cluster's id and makes one if there is none: 22
// characters, a random UUID in URL-safe base64, as Kafka's.
func (c *Client) ClusterID(ctx context.Context) (string, error) {
	if err := c.EnsurePath(ctx, "/cluster"); err != nil {
		return "", err
	}
	for {
		data, _, err := c.Get(ctx, clusterIDPath)
		if err == nil {
			var j struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal(data, &j); err != nil || j.ID == "" {
				return "", fmt.Errorf("coordination: bad cluster id %q", data)
			}
			return j.ID, nil
		}
		if !errors.Is(err, ErrNoNode) {
			return "", err
		}
		id := newUUID()
		data, _ = json.Marshal(map[string]string{"version": "1", "id": base64.RawURLEncoding.EncodeToString(id[:])})
		if err := c.Create(ctx, clusterIDPath, data); err != nil && !errors.Is(err, ErrNodeExists) {
			return "", err
		}
	}
}

func newUUID() (id [16]byte) {
	rand.Read(id[:]) // never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// ProducerIDBlock is a range of producer ids that only one broker hands out.
type ProducerIDBlock struct{ First, Last int64 }

// ErrNoProducerIDs means that all 2^63 ids are used up.
var ErrNoProducerIDs = errors.New("coordination: producer ids are exhausted")

// NextProducerIDBlock takes the next 1,000 producer ids for the broker.
func (c *Client) NextProducerIDBlock(ctx context.Context, broker int32) (ProducerIDBlock, error) {
	type block struct {
		Version int    `json:"version"`
		Broker  int32  `json:"broker"`
		Start   string `json:"block_start"`
		End     string `json:"block_end"`
	}
	for {
		data, st, err := c.Get(ctx, producerIDPath)
		if errors.Is(err, ErrNoNode) {
			if err = c.EnsurePath(ctx, producerIDPath); err != nil {
				return ProducerIDBlock{}, err
			}
			continue
		}
		if err != nil {
			return ProducerIDBlock{}, err
		}
		next := ProducerIDBlock{0, producerIDBlock - 1}
		if len(data) > 0 {
			var last block
			if err := json.Unmarshal(data, &last); err != nil {
				return ProducerIDBlock{}, fmt.Errorf("coordination: %s: %w", producerIDPath, err)
			}
			end, err := strconv.ParseInt(last.End, 10, 64)
			if err != nil {
				return ProducerIDBlock{}, fmt.Errorf("coordination: %s: %w", producerIDPath, err)
			}
			if end > (1<<63-1)-producerIDBlock {
				return ProducerIDBlock{}, ErrNoProducerIDs
			}
			next = ProducerIDBlock{end + 1, end + producerIDBlock}
		}
		data, _ = json.Marshal(block{1, broker, strconv.FormatInt(next.First, 10), strconv.FormatInt(next.Last, 10)})
		// A lost reply costs a block: the retry sees BadVersion and takes the
		// one after it. There are enough.
		if _, err := c.Set(ctx, producerIDPath, data, st.Version); err == nil {
			return next, nil
		} else if !errors.Is(err, ErrBadVersion) {
			return ProducerIDBlock{}, err
		}
	}
}
