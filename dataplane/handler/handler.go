// Package handler answers Kafka's requests: one file an API key, each checks
// the request and the caller's rights, calls the domain, and builds the reply.
// It keeps no state of its own.
//
// A handler runs on its connection's goroutine. Those that wait for the log or
// for group members hand a callback to the domain and return; those that write
// to ZooKeeper block, which holds up their own connection only.
package handler

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/admission"
	"penstock/dataplane/auth"
	"penstock/dataplane/config"
	"penstock/dataplane/controller"
	"penstock/dataplane/coordinator"
	"penstock/dataplane/fetchsession"
	"penstock/dataplane/group"
	"penstock/dataplane/listener"
	"penstock/dataplane/metadata"
	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
	"penstock/dataplane/txn"
	"penstock/dataplane/txnverify"
)

// Deps is the world of a Handler. All fields but ACLs, SASL, Features, Fetched,
// Parting with SendAway, Logger and LogLevel are required.
type Deps struct {
	BrokerID     int32
	Broker       func() *config.Broker // as it is now
	Partitions   *partition.Manager
	Metadata     *metadata.Cache
	Groups       *group.Coordinator
	Transactions *txn.Coordinator
	Sessions     *fetchsession.Cache
	Controller   *controller.Controller
	Quotas       *admission.Quotas
	Store        Store

	// ACLs decides who may do what; nil allows everything.
	ACLs *auth.Authorizer
	// SASL gives the mechanisms of a listener, nil where there is no login.
	SASL func(listener string) *auth.Server

	// EnsureTopic makes a topic unless it is there, internal ones with their own
	// settings, and waits until this broker knows its leaders.
	EnsureTopic func(ctx context.Context, topic string) error
	// NextProducerID hands out a producer id that no broker ever gave before.
	NextProducerID func(ctx context.Context) (int64, error)
	// Features are in force in the whole cluster; nil: none is.
	Features func() metadata.Features
	// VerifyTransaction and VerifyBatches have the coordinator of a transactional id asked whether
	// partitions that are led here are in the producer's transaction, or have it add them; see
	// txnverify.Verifier.
	VerifyTransaction func(txnID string, p coordinator.Producer, tps []protocol.TopicPartition, add bool, done func([]error))
	VerifyBatches     func(txnID string, p coordinator.Producer, batches []txnverify.Batch, add bool, done func([]error))
	// VerifyingMax bounds the bytes of the Produce requests that wait together for their
	// transactions' coordinators, each of which holds memory of its listener's budget. Zero
	// means no bound.
	VerifyingMax int64
	// Fetched meters the record bytes that a consumer has been sent.
	Fetched func(principal string, bytes, records int64)
	// Parting says whether leaders of this broker are moving away just now; nil: never. Who
	// then wanted to produce to partitions that this broker does not lead, or to fetch from them,
	// gets his reply by SendAway, which may call it later.
	Parting  func() bool
	SendAway func(of []partition.TopicPartition, reply func())
	// BrokerEpoch is the czxid of this broker's registration, known once
	// Registered is closed.
	BrokerEpoch func() int64
	Registered  <-chan struct{}

	Logger *slog.Logger
	// LogLevel is the level of what Logger writes, if that can be changed.
	LogLevel *slog.LevelVar
}

// Store is what the cluster keeps in ZooKeeper besides topics: configuration
// by entity and client quotas. Changes reach every broker by notification.
type Store interface {
	// TopicConfig is the topic's own settings, empty if it has none.
	TopicConfig(ctx context.Context, topic string) (map[string]string, error)
	// ChangeTopicConfig replaces them by what change makes of them. It may ask
	// more than once, when others change them at the same time.
	ChangeTopicConfig(ctx context.Context, topic string, change Change) error
	// GroupConfig and ChangeGroupConfig do the same for a consumer group.
	GroupConfig(ctx context.Context, group string) (map[string]string, error)
	ChangeGroupConfig(ctx context.Context, group string, change Change) error
	// BrokerConfig and ChangeBrokerConfig do the same for the dynamic settings of a
	// broker, named by its id, or of all (DefaultEntity).
	BrokerConfig(ctx context.Context, broker string) (map[string]string, error)
	ChangeBrokerConfig(ctx context.Context, broker string, change Change) error
	// Quotas lists every quota entity with its settings.
	Quotas(ctx context.Context) ([]QuotaEntity, error)
	// ChangeQuotas does the same for the settings of one entity, whose Values
	// are not looked at; none left removes it.
	ChangeQuotas(ctx context.Context, e QuotaEntity, change Change) error
}

// Change makes new settings of those that are there, which it may alter; its
// error leaves all as it is.
type Change func(now map[string]string) (map[string]string, error)

// QuotaEntity is a user, a client id or a pair, or else an address, with its settings. A nil part
// does not take part in the entity; the default entity is the name Default.
type QuotaEntity struct {
	User, ClientID *string
	IP             *string
	Values         map[string]string
}

// DefaultEntity stands for "every user (client id) without an own quota", and for all
// brokers, in ZooKeeper too.
const DefaultEntity = "<default>"

// Handler serves requests; see Serve.
type Handler struct {
	Deps
	verifying atomic.Int64 // see VerifyingMax
	ctx       context.Context
	serving   map[int16]func(*listener.Request)
}

// New makes a handler whose blocking work ends with ctx.
func New(ctx context.Context, d Deps) *Handler {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.LogLevel == nil {
		d.LogLevel = new(slog.LevelVar)
	}
	h := &Handler{Deps: d, ctx: ctx}
	h.serving = map[int16]func(*listener.Request){
		0: h.produce, 1: h.fetch, 2: h.listOffsets, 3: h.metadata,
		4: h.leaderAndISR, 5: h.stopReplica, 6: h.updateMetadata, 7: h.controlledShutdown,
		8: h.offsetCommit, 9: h.offsetFetch, 10: h.findCoordinator, 11: h.joinGroup, 12: h.heartbeat,
		13: h.leaveGroup, 14: h.syncGroup, 15: h.describeGroups, 16: h.listGroups,
		17: h.saslHandshake, 18: h.apiVersions, 19: h.createTopics, 20: h.deleteTopics,
		21: h.deleteRecords, 22: h.initProducerID, 23: h.offsetForLeaderEpoch,
		24: h.addPartitionsToTxn, 25: h.addOffsetsToTxn, 26: h.endTxn, 27: h.writeTxnMarkers, 28: h.txnOffsetCommit,
		29: h.describeACLs, 30: h.createACLs, 31: h.deleteACLs,
		32: h.describeConfigs, 33: h.alterConfigs, 34: h.alterReplicaLogDirs, 35: h.describeLogDirs, 36: h.saslAuthenticate, 37: h.createPartitions,
		42: h.deleteGroups, 43: h.electLeaders, 44: h.incrementalAlterConfigs, 45: h.alterPartitionReassignments, 46: h.listPartitionReassignments, 47: h.offsetDelete,
		48: h.describeClientQuotas, 49: h.alterClientQuotas,
		56: h.alterPartition, 60: h.describeCluster, 61: h.describeProducers, 65: h.describeTransactions, 66: h.listTransactions, 67: h.allocateProducerIDs,
		68: h.consumerGroupHeartbeat, 69: h.consumerGroupDescribe, 75: h.describeTopicPartitions,
	}
	return h
}

// Serve answers one request. The listener has checked key, version and body.
func (h *Handler) Serve(r *listener.Request) {
	serve := h.serving[r.Key]
	if serve == nil {
		r.CloseConn("no handler for a request that the version table names")
		return
	}
	serve(r)
}

// Keys lists what is served, for the test that holds it against the table of
// versions.
func (h *Handler) Keys() []int16 {
	keys := make([]int16, 0, len(h.serving))
	for k := range h.serving {
		keys = append(keys, k)
	}
	return keys
}

// authorize asks whether the caller may do op on the resource.
func (h *Handler) authorize(r *listener.Request, op kmsg.ACLOperation, typ kmsg.ACLResourceType, name string) bool {
	return h.ACLs.Authorize(r.Conn.Principal(), r.Conn.Host(), op, typ, name)
}

// authorizeChange asks for a right to make, change or remove a topic itself. The
// internal topics belong to the brokers and to who operates them: a rule on "*"
// must reach neither what is billed nor the settings that committed offsets
// depend on, so those need ClusterAction as well.
func (h *Handler) authorizeChange(r *listener.Request, op kmsg.ACLOperation, topic string) bool {
	return h.authorize(r, op, kmsg.ACLResourceTypeTopic, topic) && h.mayTouch(r, topic)
}

func (h *Handler) mayTouch(r *listener.Request, topic string) bool {
	return !protocol.InternalTopic(topic) || h.authorizeCluster(r, kmsg.ACLOperationClusterAction)
}

// clusterName is the name of the one resource of type Cluster.
const clusterName = "kafka-cluster"

func (h *Handler) authorizeCluster(r *listener.Request, op kmsg.ACLOperation) bool {
	return h.authorize(r, op, kmsg.ACLResourceTypeCluster, clusterName)
}

// IsBroker says whether the caller may act as a broker of the cluster.
func (h *Handler) IsBroker(r *listener.Request) bool {
	return h.authorizeCluster(r, kmsg.ACLOperationClusterAction)
}

// User is the principal as quotas name it, without its type.
func User(c *listener.Conn) string {
	p := c.Principal()
	if len(p) > 5 && p[:5] == "User:" {
		return p[5:]
	}
	return p
}

// metered is whose usage a connection's traffic is, "" if nobody's: brokers and
// the control plane come in on a listener of their own, and what they move is
// the service's own business.
func (h *Handler) metered(c *listener.Conn) string {
	if len(h.Broker().Listeners) > 1 && c.Listener() == h.Broker().InterBrokerListener {
		return ""
	}
	return c.Principal()
}

// within bounds blocking work by the request's timeout and the broker's life.
func (h *Handler) within(millis int32) (context.Context, context.CancelFunc) {
	d := time.Duration(millis) * time.Millisecond
	if d <= 0 || d > time.Minute {
		d = time.Minute
	}
	return context.WithTimeout(h.ctx, d)
}

// parting says whether an answer is to be looked at for partitions that are led elsewhere.
func (h *Handler) parting() bool { return h.Parting != nil && h.Parting() }

// notLed lists the partitions of which the results say that they are not led here.
func notLed[R any](results []R, of func(*R) (partition.TopicPartition, error)) (away []partition.TopicPartition) {
	for i := range results {
		if tp, err := of(&results[i]); errors.Is(err, kerr.NotLeaderForPartition) {
			away = append(away, tp)
		}
	}
	return away
}

// ledBy is who leads the partition and since which epoch, by what its replica here has answered to a request that
// was not its to serve, or by the metadata if no replica is here any more (KIP-951); -1 and -1 if nobody knows.
func (h *Handler) ledBy(tp partition.TopicPartition, err error, leader, epoch int32) (int32, int32) {
	if epoch < 0 && errors.Is(err, kerr.NotLeaderForPartition) {
		if p := h.Metadata.Image().Partition(tp.Topic, tp.Partition); p != nil && p.Leader >= 0 {
			return p.Leader, p.LeaderEpoch
		}
	}
	return leader, epoch
}

// sendAway is SendAway, at once when there is nobody to be sent.
func (h *Handler) sendAway(away []partition.TopicPartition, reply func()) {
	if len(away) == 0 {
		reply()
		return
	}
	h.SendAway(away, reply)
}

// text is an error's message for a reply, nil for none.
func text(err error) *string { return protocol.Message(err) }

func code(err error) int16 { return protocol.Code(err) }
