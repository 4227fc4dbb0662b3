package config

// aclAuthorizer is the one authorizer of Kafka's that has a counterpart here.
const aclAuthorizer = "kafka.security.authorizer.AclAuthorizer"

// Kafka's own choices of the replica that a consumer reads (KIP-392).
const (
	leaderSelector    = "org.apache.kafka.common.replica.LeaderSelector"
	rackAwareSelector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
)

// brokerKeys are the settings of Kafka's that the broker honours or takes
// without effect where the doc says so.
var brokerKeys = []key{
	{name: "add.partitions.to.txn.retry.backoff.max.ms", typ: tInt, def: "100", check: atLeast(0), doc: "How long a leader tries to add a partition to a transaction while the producer's last one is being ended, in ms."},
	{name: "add.partitions.to.txn.retry.backoff.ms", typ: tInt, def: "20", check: atLeast(1), doc: "Pause between these attempts, in ms."},
	{name: "advertised.listeners", typ: tString, null: true, doc: "Addresses that clients are told, by listener; listeners if not set."},
	{name: "authorizer.class.name", typ: tString, def: "", check: oneOf("", aclAuthorizer), doc: "Empty: everything is allowed. Kafka's AclAuthorizer: the ACLs in ZooKeeper decide."},
	{name: "auto.create.topics.enable", typ: tBool, def: "true", doc: "Whether asking for an unknown topic creates it."},
	{name: "auto.leader.rebalance.enable", typ: tBool, def: "true", doc: "Whether leadership goes back to preferred replicas by itself."},
	{name: "broker.id", typ: tInt, def: "-1", check: atLeast(-1), doc: "The broker's id, 0 or more."},
	{name: "broker.rack", typ: tString, null: true, doc: "The broker's rack, for placing replicas apart."},
	{name: "compression.gzip.level", typ: tInt, def: "-1", check: or("-1 or between 1 and 9", between(-1, -1), between(1, 9)), dynamic: true, doc: "Level of gzip where the broker compresses itself."},
	{name: "compression.lz4.level", typ: tInt, def: "9", check: between(1, 17), dynamic: true, doc: "Level of lz4 where the broker compresses itself."},
	{name: "compression.type", typ: tString, def: "producer", check: codecs, dynamic: true, doc: "Codec of stored batches; producer keeps the one that they came with."},
	{name: "compression.zstd.level", typ: tInt, def: "3", check: between(-131072, 22), dynamic: true, doc: "Level of zstd where the broker compresses itself."},
	{name: "connection.failed.authentication.delay.ms", typ: tInt, def: "100", check: atLeast(0), doc: "Delay of the refusal of a login, in ms."},
	{name: "connections.max.idle.ms", typ: tLong, def: "600000", doc: "Idle time after which a connection is closed, in ms; negative is never."},
	{name: "connections.max.reauth.ms", typ: tLong, def: "0", doc: "Longest life of a login without re-authentication, in ms; 0 leaves it to the token (KIP-368)."},
	{name: "controlled.shutdown.enable", typ: tBool, def: "true", doc: "Whether a stopping broker hands its leadership over first."},
	{name: "controlled.shutdown.max.retries", typ: tInt, def: "3", check: atLeast(0), doc: "Attempts at handing over."},
	{name: "controlled.shutdown.retry.backoff.ms", typ: tLong, def: "5000", check: atLeast(0), doc: "Pause between attempts at handing over, in ms."},
	{name: "controller.socket.timeout.ms", typ: tInt, def: "30000", check: atLeast(1), doc: "Longest wait for a broker's answer to the controller, in ms."},
	{name: "default.replication.factor", typ: tInt, def: "1", check: atLeast(1), doc: "Replicas of topics made without saying how many."},
	{name: "delete.topic.enable", typ: tBool, def: "true", doc: "Whether topics may be deleted."},
	{name: "fetch.max.bytes", typ: tInt, def: "57671680", check: atLeast(1024), doc: "Most bytes in one fetch reply."},
	{name: "follower.replication.throttled.rate", typ: tLong, def: "9223372036854775807", check: atLeast(0), dynamic: true, doc: "Bytes per second that this broker's throttled followers fetch at, all together (follower.replication.throttled.replicas of the topics). Kafka knows it as a dynamic setting only."},
	{name: "group.consumer.assignment.interval.ms", typ: tInt, def: "1000", check: atLeast(0), doc: "Least time between two assignments of a consumer group (KIP-1263), in ms."},
	{name: "group.consumer.assignors", typ: tList, def: "uniform,range", check: assignors, doc: "Assignors that members of consumer groups may ask for, uniform and range or Kafka's classes of these names; the first is for those that do not ask."},
	{name: "group.consumer.heartbeat.interval.ms", typ: tInt, def: "5000", check: atLeast(1), doc: "Time between heartbeats that members of consumer groups are told to keep, in ms."},
	{name: "group.consumer.max.assignment.interval.ms", typ: tInt, def: "15000", check: atLeast(0), doc: "Largest value of group.consumer.assignment.interval.ms, in ms."},
	{name: "group.consumer.max.heartbeat.interval.ms", typ: tInt, def: "15000", check: atLeast(1), doc: "Largest value of group.consumer.heartbeat.interval.ms, in ms."},
	{name: "group.consumer.max.session.timeout.ms", typ: tInt, def: "60000", check: atLeast(1), doc: "Largest value of group.consumer.session.timeout.ms, in ms."},
	{name: "group.consumer.max.size", typ: tInt, def: "2147483647", check: atLeast(1), doc: "Most members of one consumer group."},
	{name: "group.consumer.migration.policy", typ: tString, def: "BIDIRECTIONAL", check: anyCase("BIDIRECTIONAL", "UPGRADE", "DOWNGRADE", "DISABLED"), doc: "Which way a group with members may change between the classic and the consumer protocol."},
	{name: "group.consumer.min.assignment.interval.ms", typ: tInt, def: "0", check: atLeast(0), doc: "Least value of group.consumer.assignment.interval.ms, in ms."},
	{name: "group.consumer.min.heartbeat.interval.ms", typ: tInt, def: "5000", check: atLeast(1), doc: "Least value of group.consumer.heartbeat.interval.ms, in ms."},
	{name: "group.consumer.min.session.timeout.ms", typ: tInt, def: "45000", check: atLeast(1), doc: "Least value of group.consumer.session.timeout.ms, in ms."},
	{name: "group.consumer.regex.refresh.interval.ms", typ: tInt, def: "600000", check: atLeast(10000), doc: "Time after which the topics of subscribed regular expressions are looked up again whatever happens, in ms."},
	{name: "group.consumer.session.timeout.ms", typ: tInt, def: "45000", check: atLeast(1), doc: "Silence after which a member of a consumer group is given up, in ms."},
	{name: "group.coordinator.rebalance.protocols", typ: tList, def: "classic,consumer", check: listOf("classic", "consumer", "share", "streams"), doc: "Group protocols served: without consumer, members of that protocol are refused (UNSUPPORTED_VERSION); classic is always served, share and streams are not."},
	{name: "group.initial.rebalance.delay.ms", typ: tInt, def: "3000", check: atLeast(0), doc: "Wait for more members before a new group's first rebalance, in ms."},
	{name: "group.max.session.timeout.ms", typ: tInt, def: "1800000", check: atLeast(0), doc: "Longest session timeout that a member may ask for, in ms."},
	{name: "group.max.size", typ: tInt, def: "2147483647", check: atLeast(1), doc: "Most members of one group."},
	{name: "group.min.session.timeout.ms", typ: tInt, def: "6000", check: atLeast(0), doc: "Shortest session timeout that a member may ask for, in ms."},
	{name: "inter.broker.listener.name", typ: tString, null: true, doc: "Listener that brokers talk over among themselves."},
	{name: "inter.broker.protocol.version", typ: tString, def: "3.9-IV0", doc: "Taken for Kafka's sake; brokers speak 3.9 among themselves."},
	{name: "leader.replication.throttled.rate", typ: tLong, def: "9223372036854775807", check: atLeast(0), dynamic: true, doc: "Bytes per second that this broker's throttled leaders send to followers, all together (leader.replication.throttled.replicas of the topics). Kafka knows it as a dynamic setting only."},
	{name: "leader.imbalance.check.interval.seconds", typ: tLong, def: "300", check: atLeast(1), doc: "Time between looks at the balance of leadership, in s."},
	{name: "leader.imbalance.per.broker.percentage", typ: tInt, def: "10", check: between(0, 100), doc: "Share of misplaced leaders that is put up with, in percent."},
	{name: "listener.security.protocol.map", typ: tString, def: "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", doc: "Security protocol of each listener's name."},
	{name: "listeners", typ: tString, def: "PLAINTEXT://:9092", check: notEmpty, doc: "Addresses to listen on, as NAME://host:port."},
	{name: "log.cleaner.backoff.ms", typ: tLong, def: "15000", check: atLeast(0), dynamic: true, doc: "Pause of the cleaner when no log has to be compacted, in ms."},
	{name: "log.cleaner.dedupe.buffer.size", typ: tLong, def: "134217728", check: atLeast(1), dynamic: true, doc: "Memory for the keys of the logs that are being compacted, all threads together, in bytes; 24 a key. It is taken while it is needed."},
	{name: "log.cleaner.delete.retention.ms", typ: tLong, def: "86400000", check: atLeast(0), dynamic: true, doc: "How long a compacted topic keeps tombstones, in ms."},
	{name: "log.cleaner.enable", typ: tBool, def: "true", doc: "Whether logs whose policy is compact are compacted."},
	{name: "log.cleaner.io.buffer.load.factor", typ: tDouble, def: "0.9", check: share, dynamic: true, doc: "Share of the dedupe buffer that is filled with keys."},
	{name: "log.cleaner.io.buffer.size", typ: tInt, def: "524288", check: atLeast(0), dynamic: true, doc: "Read and write buffers of the cleaner, all threads together, in bytes; a larger batch gets a larger one for its time."},
	{name: "log.cleaner.io.max.bytes.per.second", typ: tDouble, def: "1.7976931348623157E308", check: positive, dynamic: true, doc: "Most bytes a second that compaction reads and writes, all threads together."},
	{name: "log.cleaner.max.compaction.lag.ms", typ: tLong, def: "9223372036854775807", check: atLeast(1), dynamic: true, doc: "Longest time that a record stays out of reach of compaction, in ms."},
	{name: "log.cleaner.min.cleanable.ratio", typ: tDouble, def: "0.5", check: ratio, dynamic: true, doc: "Share of a log that must be dirty before it is compacted."},
	{name: "log.cleaner.min.compaction.lag.ms", typ: tLong, def: "0", check: atLeast(0), dynamic: true, doc: "Least time that a record stays as it is before compaction, in ms."},
	{name: "log.cleaner.threads", typ: tInt, def: "1", check: atLeast(0), dynamic: true, doc: "Logs that are compacted at one time."},
	{name: "log.cleanup.policy", typ: tList, def: "delete", check: listOf("delete", "compact"), dynamic: true, doc: "What becomes of old segments: delete, compact, or both."},
	{name: "log.dir", typ: tString, def: "/tmp/kafka-logs", doc: "Folder of the logs, if log.dirs is not set."},
	{name: "log.dirs", typ: tString, null: true, doc: "Folders of the logs."},
	{name: "log.flush.interval.messages", typ: tLong, def: "9223372036854775807", check: atLeast(1), dynamic: true, doc: "Records after which a log is synced to disk."},
	{name: "log.flush.interval.ms", typ: tLong, null: true, check: atLeast(0), dynamic: true, doc: "Time after which a log is synced to disk, in ms; log.flush.scheduler.interval.ms if not set."},
	{name: "log.flush.offset.checkpoint.interval.ms", typ: tInt, def: "60000", check: atLeast(0), doc: "Time between checkpoints of recovery points, in ms."},
	{name: "log.flush.scheduler.interval.ms", typ: tLong, def: "9223372036854775807", check: atLeast(1), doc: "Time between looks for logs to sync, in ms; at most a second passes."},
	{name: "log.flush.start.offset.checkpoint.interval.ms", typ: tInt, def: "60000", check: atLeast(0), doc: "Time between checkpoints of log start offsets, in ms."},
	{name: "log.index.interval.bytes", typ: tInt, def: "4096", check: atLeast(0), dynamic: true, doc: "Log bytes between two entries of the offset index."},
	{name: "log.index.size.max.bytes", typ: tInt, def: "10485760", check: atLeast(4), dynamic: true, doc: "Largest size of a segment's index, in bytes."},
	{name: "log.local.retention.bytes", typ: tLong, def: "-2", check: atLeast(-2), dynamic: true, doc: "Tiered storage; without effect here."},
	{name: "log.local.retention.ms", typ: tLong, def: "-2", check: atLeast(-2), dynamic: true, doc: "Tiered storage; without effect here."},
	{name: "log.message.downconversion.enable", typ: tBool, def: "true", dynamic: true, doc: "Without effect: only format v2 is served."},
	{name: "log.message.format.version", typ: tString, def: "3.0-IV1", doc: "Without effect: records are always stored in format v2."},
	{name: "log.message.timestamp.after.max.ms", typ: tLong, def: "3600000", check: atLeast(0), dynamic: true, doc: "How far a record's time may lie in the future, in ms."},
	{name: "log.message.timestamp.before.max.ms", typ: tLong, def: "9223372036854775807", check: atLeast(0), dynamic: true, doc: "How far a record's time may lie in the past, in ms."},
	{name: "log.message.timestamp.difference.max.ms", typ: tLong, def: "9223372036854775807", check: atLeast(0), dynamic: true, doc: "Older form that bounds past and future alike, in ms."},
	{name: "log.message.timestamp.type", typ: tString, def: "CreateTime", check: oneOf("CreateTime", "LogAppendTime"), dynamic: true, doc: "Whether records keep the producer's time or get the broker's."},
	{name: "log.preallocate", typ: tBool, def: "false", dynamic: true, doc: "Whether a new segment's file gets its disk space at once."},
	{name: "log.retention.bytes", typ: tLong, def: "-1", dynamic: true, doc: "Size up to which a partition is kept, in bytes; -1 is no limit."},
	{name: "log.retention.check.interval.ms", typ: tLong, def: "300000", check: atLeast(1), doc: "Time between looks for segments to delete, in ms."},
	{name: "log.retention.hours", typ: tInt, def: "168", doc: "Time for which records are kept, in hours."},
	{name: "log.retention.minutes", typ: tInt, null: true, doc: "The same in minutes; wins over hours."},
	{name: "log.retention.ms", typ: tLong, null: true, check: atLeast(-1), dynamic: true, doc: "The same in ms; wins over minutes."},
	{name: "log.roll.hours", typ: tInt, def: "168", check: atLeast(1), doc: "Age at which a segment is closed, in hours."},
	{name: "log.roll.jitter.hours", typ: tInt, def: "0", check: atLeast(0), doc: "Random time taken off the roll time, in hours."},
	{name: "log.roll.jitter.ms", typ: tLong, null: true, dynamic: true, doc: "The same in ms; wins over hours."},
	{name: "log.roll.ms", typ: tLong, null: true, dynamic: true, doc: "Age at which a segment is closed, in ms; wins over hours."},
	{name: "log.segment.bytes", typ: tInt, def: "1073741824", check: atLeast(14), dynamic: true, doc: "Size at which a segment is closed, in bytes."},
	{name: "log.segment.delete.delay.ms", typ: tLong, def: "60000", check: atLeast(0), dynamic: true, doc: "Time between marking a file as deleted and removing it, in ms."},
	{name: "max.connection.creation.rate", typ: tInt, def: "2147483647", check: atLeast(0), dynamic: true, doc: "Connections made per second over all listeners but the inter-broker one; more wait to be accepted (KIP-612)."},
	{name: "max.connections", typ: tInt, def: "2147483647", check: atLeast(0), dynamic: true, doc: "Connections at one time; the inter-broker listener always gets in."},
	{name: "max.connections.per.ip", typ: tInt, def: "2147483647", check: atLeast(0), dynamic: true, doc: "Connections at one time from one address."},
	{name: "max.connections.per.ip.overrides", typ: tString, def: "", check: ipOverrides, dynamic: true, doc: "The same for single addresses, as address:count."},
	{name: "max.request.partition.size.limit", typ: tInt, def: "2000", check: atLeast(1), doc: "Partitions in one answer to DescribeTopicPartitions."},
	{name: "max.incremental.fetch.session.cache.slots", typ: tInt, def: "1000", check: atLeast(0), doc: "Fetch sessions kept (KIP-227)."},
	{name: "message.max.bytes", typ: tInt, def: "1048588", check: atLeast(0), dynamic: true, doc: "Largest record batch taken, in bytes."},
	{name: "min.insync.replicas", typ: tInt, def: "1", check: atLeast(1), dynamic: true, doc: "Replicas that must be in sync for acks=all to be taken."},
	{name: "num.io.threads", typ: tInt, def: "8", check: atLeast(1), doc: "Counts in the capacity of request quotas; the broker sizes its own work."},
	{name: "num.network.threads", typ: tInt, def: "3", check: atLeast(1), doc: "Counts in the capacity of request quotas; the broker sizes its own work."},
	{name: "num.partitions", typ: tInt, def: "1", check: atLeast(1), doc: "Partitions of topics made without saying how many."},
	{name: "num.recovery.threads.per.data.dir", typ: tInt, def: "1", check: atLeast(1), dynamic: true, doc: "Logs loaded at one time at start, for each folder."},
	{name: "num.replica.alter.log.dirs.threads", typ: tInt, null: true, check: atLeast(1), doc: "Replicas that move to another folder at one time; one for each folder if not set."},
	{name: "num.replica.fetchers", typ: tInt, def: "1", check: atLeast(1), dynamic: true, doc: "Connections for replication to each other broker."},
	{name: "offset.metadata.max.bytes", typ: tInt, def: "4096", check: atLeast(0), doc: "Longest note that a commit may carry, in bytes."},
	{name: "offsets.commit.timeout.ms", typ: tInt, def: "5000", check: atLeast(1), doc: "Longest wait for the replicas at a commit, in ms."},
	{name: "offsets.retention.check.interval.ms", typ: tLong, def: "600000", check: atLeast(1), doc: "Time between looks for offsets to expire, in ms."},
	{name: "offsets.retention.minutes", typ: tInt, def: "10080", check: atLeast(1), doc: "Time for which an unused group's offsets are kept, in minutes."},
	{name: "offsets.topic.num.partitions", typ: tInt, def: "50", check: atLeast(1), doc: "Partitions of the offsets topic."},
	{name: "offsets.topic.replication.factor", typ: tShort, def: "3", check: atLeast(1), doc: "Replicas of the offsets topic."},
	{name: "offsets.topic.segment.bytes", typ: tInt, def: "104857600", check: atLeast(1), doc: "Segment size of the offsets topic, in bytes."},
	{name: "producer.id.expiration.check.interval.ms", typ: tInt, def: "600000", check: atLeast(1), doc: "Time between looks for producers to forget, in ms."},
	{name: "producer.id.expiration.ms", typ: tInt, def: "86400000", check: atLeast(1), dynamic: true, doc: "Time after which an idle producer is forgotten, in ms."},
	{name: "queued.max.request.bytes", typ: tLong, def: "-1", doc: "Most bytes of requests in memory; -1 leaves it to the broker."},
	{name: "quota.window.num", typ: tInt, def: "11", check: atLeast(1), doc: "Samples kept by client quotas."},
	{name: "quota.window.size.seconds", typ: tInt, def: "1", check: atLeast(1), doc: "Length of one sample of client quotas, in s."},
	{name: "replica.alter.log.dirs.io.max.bytes.per.second", typ: tLong, def: "9223372036854775807", check: atLeast(0), dynamic: true, doc: "Bytes per second that all replicas together move at to other folders. Kafka knows it as a dynamic setting only."},
	{name: "replica.fetch.backoff.ms", typ: tInt, def: "1000", check: atLeast(0), doc: "Pause after a failed replica fetch, in ms."},
	{name: "replica.fetch.max.bytes", typ: tInt, def: "1048576", check: atLeast(0), doc: "Bytes that a follower asks for, by partition."},
	{name: "replica.fetch.min.bytes", typ: tInt, def: "1", check: atLeast(0), doc: "Bytes that a follower waits for."},
	{name: "replica.fetch.response.max.bytes", typ: tInt, def: "10485760", check: atLeast(0), doc: "Bytes that a follower asks for in all."},
	{name: "replica.fetch.wait.max.ms", typ: tInt, def: "500", check: atLeast(0), doc: "Longest wait of a follower's fetch, in ms."},
	{name: "replica.high.watermark.checkpoint.interval.ms", typ: tLong, def: "5000", check: atLeast(1), doc: "Time between checkpoints of high watermarks, in ms."},
	{name: "replica.lag.time.max.ms", typ: tLong, def: "30000", check: atLeast(1), doc: "Time without catching up after which a follower is out of sync, in ms."},
	{name: "replica.selector.class", typ: tString, null: true, check: oneOf("", leaderSelector, rackAwareSelector), doc: "Which replica a consumer with a client.rack is sent to: the leader, if not set, or with Kafka's RackAwareReplicaSelector one in sync in its own rack (KIP-392)."},
	{name: "replica.socket.timeout.ms", typ: tInt, def: "30000", check: atLeast(1), doc: "Longest wait for a leader's answer, in ms."},
	{name: "request.timeout.ms", typ: tInt, def: "30000", check: atLeast(1), doc: "Longest wait for an answer among brokers, in ms."},
	{name: "reserved.broker.max.id", typ: tInt, def: "1000", check: atLeast(0), doc: "Largest broker id that may be set by hand."},
	{name: "sasl.enabled.mechanisms", typ: tList, def: "GSSAPI", doc: "Login mechanisms: PLAIN and OAUTHBEARER are built."},
	{name: "sasl.jaas.config", typ: tPassword, null: true, doc: "Login settings; normally with a listener's and a mechanism's prefix."},
	{name: "sasl.mechanism.inter.broker.protocol", typ: tString, def: "GSSAPI", doc: "Mechanism that brokers log in with among themselves."},
	{name: "sasl.oauthbearer.clock.skew.seconds", typ: tInt, def: "30", check: between(0, 3600), doc: "Difference of clocks that is put up with in tokens' times, in s."},
	{name: "sasl.oauthbearer.expected.audience", typ: tList, null: true, doc: "Audiences of which a token must name one."},
	{name: "sasl.oauthbearer.expected.issuer", typ: tString, null: true, doc: "Issuer that a token must name exactly."},
	{name: "sasl.oauthbearer.jwks.endpoint.refresh.ms", typ: tLong, def: "3600000", check: atLeast(1), doc: "Time between reads of the issuer's keys, in ms."},
	{name: "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", typ: tLong, def: "10000", check: atLeast(1), doc: "Longest pause after a failed read of the keys, in ms."},
	{name: "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", typ: tLong, def: "100", check: atLeast(1), doc: "First pause after a failed read of the keys, in ms."},
	{name: "sasl.oauthbearer.jwks.endpoint.url", typ: tString, null: true, check: jwksURL, doc: "Where the issuer's keys are: an http, https or file address."},
	{name: "sasl.oauthbearer.sub.claim.name", typ: tString, def: "sub", check: notEmpty, doc: "Claim that holds the principal's name."},
	{name: "sasl.server.max.receive.size", typ: tInt, def: "65536", check: between(1024, 104857600), doc: "Most bytes of a frame before login; Kafka takes 524288."},
	{name: "security.inter.broker.protocol", typ: tString, def: "PLAINTEXT", check: oneOf("PLAINTEXT", "SASL_PLAINTEXT"), doc: "Names the inter-broker listener where inter.broker.listener.name does not."},
	{name: "socket.listen.backlog.size", typ: tInt, def: "50", check: atLeast(1), doc: "Connections waiting to be accepted."},
	{name: "socket.receive.buffer.bytes", typ: tInt, def: "524288", doc: "Receive buffer of sockets, in bytes; -1 leaves it to the system. Kafka takes 102400."},
	{name: "socket.request.max.bytes", typ: tInt, def: "104857600", check: atLeast(1), doc: "Largest request, in bytes."},
	{name: "socket.send.buffer.bytes", typ: tInt, def: "102400", doc: "Send buffer of sockets, in bytes; -1 leaves it to the system."},
	{name: "transaction.abort.timed.out.transaction.cleanup.interval.ms", typ: tInt, def: "10000", check: atLeast(1), doc: "Time between looks for transactions whose time is up, in ms."},
	{name: "transaction.max.timeout.ms", typ: tInt, def: "900000", check: atLeast(1), doc: "Longest transaction timeout that a producer may ask for, in ms."},
	{name: "transaction.partition.verification.enable", typ: tBool, def: "true", dynamic: true, doc: "Whether a leader asks the transaction coordinator before it takes the first batch of a transaction into a partition (KIP-890)."},
	{name: "transaction.remove.expired.transaction.cleanup.interval.ms", typ: tInt, def: "3600000", check: atLeast(1), doc: "Time between looks for transactional ids to forget, in ms."},
	{name: "transaction.state.log.min.isr", typ: tInt, def: "2", check: atLeast(1), doc: "min.insync.replicas of the transactions topic."},
	{name: "transaction.state.log.num.partitions", typ: tInt, def: "50", check: atLeast(1), doc: "Partitions of the transactions topic."},
	{name: "transaction.state.log.replication.factor", typ: tShort, def: "3", check: atLeast(1), doc: "Replicas of the transactions topic."},
	{name: "transaction.state.log.segment.bytes", typ: tInt, def: "104857600", check: atLeast(1), doc: "Segment size of the transactions topic, in bytes."},
	{name: "transactional.id.expiration.ms", typ: tInt, def: "604800000", check: atLeast(1), doc: "Time after which an unused transactional id is forgotten, in ms."},
	{name: "unclean.leader.election.enable", typ: tBool, def: "false", dynamic: true, doc: "Whether a replica out of sync may lead when no other lives."},
	{name: "zookeeper.connect", typ: tString, null: true, doc: "ZooKeeper's servers, host:port with commas, and a chroot."},
	{name: "zookeeper.connection.timeout.ms", typ: tInt, null: true, doc: "Longest wait for ZooKeeper at start, in ms; the session timeout if not set."},
	{name: "zookeeper.session.timeout.ms", typ: tInt, def: "18000", check: atLeast(1), doc: "Time without contact after which ZooKeeper declares the broker dead, in ms."},
	{name: "zookeeper.set.acl", typ: tBool, def: "false", doc: "Whether znodes are made writable for the brokers only."},
	{name: "allow.everyone.if.no.acl.found", typ: tBool, def: "false", doc: "Whether a resource without any ACL is open to all."},
	{name: "super.users", typ: tString, def: "", doc: "Principals that may do everything, as User:name with semicolons between."},

	{name: "penstock.auth.not.before", typ: tList, def: "", check: notBefore, dynamic: true, clusterWide: true, doc: "Revocations, each User:NAME=MS or Credential:ID=MS: tokens of that principal, or with that claim credential, that were issued before the time (Unix ms) are refused, and connections that logged in with one are cut at once. Names are URL-encoded. For all brokers only."},
	{name: "penstock.auth.token.max.lifetime.seconds", typ: tInt, def: "86400", check: atLeast(1), doc: "Tokens that are valid for longer, or whose expiry lies further ahead, are refused, in s."},
	{name: "penstock.group.memory.max.bytes", typ: tLong, def: "268435456", check: atLeast(0), doc: "Memory that all groups coordinated here hold together, by estimate, in bytes: members, assignments, committed offsets. New groups, members and offsets have three quarters of it. 0 is no bound."},
	{name: "penstock.log.open.files.max", typ: tInt, def: "0", check: atLeast(0), doc: "Segment and index files that all logs together keep open; 0 is a fifth of the process's limit on open files, at most 16384. Files that replies are sent from stay open until they are sent; above the bound a Fetch is answered with the data of one partition."},
	{name: "penstock.oauth.algorithms", typ: tList, def: "ES256", check: listOf("ES256", "RS256"), doc: "Signature algorithms that tokens may use."},
	{name: "penstock.oauth.jwks.cache.file", typ: tString, def: "", doc: "File that keeps the issuer's keys for starts without the issuer; empty keeps none."},
	{name: "penstock.telemetry.metrics.endpoint", typ: tString, def: "", check: collectorURL, doc: "URL that metrics are posted to as OTLP, as a rule http://HOST:4318/v1/metrics; empty sends none."},
	{name: "penstock.telemetry.metrics.interval.ms", typ: tLong, def: "60000", check: atLeast(100), doc: "Time between two reports of metrics, in ms."},
	{name: "penstock.usage.enable", typ: tBool, def: "false", doc: "Whether usage is counted and written to the usage topic."},
	{name: "penstock.usage.interval.ms", typ: tLong, def: "10000", check: atLeast(100), doc: "Time between usage records, in ms."},
	{name: "penstock.usage.topic.replication.factor", typ: tShort, def: "3", check: atLeast(1), doc: "Replicas of the usage topic."},
	{name: "penstock.zookeeper.digest", typ: tPassword, null: true, check: digestUser, doc: "user:password of the digest login to ZooKeeper."},
}

var brokerIndex = index(brokerKeys)

// kafkaOnly are Kafka's other settings: their subject is not part of this
// broker, so they are warned of by a text of their own.
var kafkaOnly = setOf(`
alter.config.policy.class.name
alter.config.policy.kraft.compatibility.enable
alter.log.dirs.replication.quota.window.num
alter.log.dirs.replication.quota.window.size.seconds
auto.include.jmx.reporter
background.threads
broker.heartbeat.interval.ms
broker.id.generation.enable
broker.session.timeout.ms
client.quota.callback.class
control.plane.listener.name
controller.listener.names
controller.quorum.append.linger.ms
controller.quorum.bootstrap.servers
controller.quorum.election.backoff.max.ms
controller.quorum.election.timeout.ms
controller.quorum.fetch.timeout.ms
controller.quorum.request.timeout.ms
controller.quorum.retry.backoff.ms
controller.quorum.voters
controller.quota.window.num
controller.quota.window.size.seconds
create.topic.policy.class.name
delegation.token.expiry.check.interval.ms
delegation.token.expiry.time.ms
delegation.token.master.key
delegation.token.max.lifetime.ms
delegation.token.secret.key
delete.records.purgatory.purge.interval.requests
early.start.listeners
eligible.leader.replicas.enable
fetch.purgatory.purge.interval.requests
group.consumer.assignor.offload.enable
group.coordinator.append.linger.ms
group.coordinator.new.enable
group.coordinator.threads
group.share.delivery.count.limit
group.share.enable
group.share.heartbeat.interval.ms
group.share.max.groups
group.share.max.heartbeat.interval.ms
group.share.max.record.lock.duration.ms
group.share.max.session.timeout.ms
group.share.max.size
group.share.min.heartbeat.interval.ms
group.share.min.record.lock.duration.ms
group.share.min.session.timeout.ms
group.share.partition.max.record.locks
group.share.record.lock.duration.ms
group.share.session.timeout.ms
initial.broker.registration.timeout.ms
kafka.metrics.polling.interval.secs
kafka.metrics.reporters
log.dir.failure.timeout.ms
log.initial.task.delay.ms
max.request.partition.size.limit
metadata.log.dir
metadata.log.max.record.bytes.between.snapshots
metadata.log.max.snapshot.interval.ms
metadata.log.segment.bytes
metadata.log.segment.min.bytes
metadata.log.segment.ms
metadata.max.idle.interval.ms
metadata.max.retention.bytes
metadata.max.retention.ms
metric.reporters
metrics.num.samples
metrics.recording.level
metrics.sample.window.ms
node.id
offsets.commit.required.acks
offsets.load.buffer.size
offsets.topic.compression.codec
password.encoder.cipher.algorithm
password.encoder.iterations
password.encoder.key.length
password.encoder.keyfactory.algorithm
password.encoder.old.secret
password.encoder.secret
principal.builder.class
process.roles
producer.purgatory.purge.interval.requests
queued.max.requests
remote.fetch.max.wait.ms
remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size
remote.log.manager.copy.max.bytes.per.second
remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds
remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.task.interval.ms
remote.log.manager.task.retry.backoff.max.ms
remote.log.manager.task.retry.backoff.ms
remote.log.manager.task.retry.jitter
remote.log.manager.thread.pool.size
remote.log.metadata.custom.metadata.max.bytes
remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path
remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name
remote.log.reader.max.pending.tasks
remote.log.reader.threads
remote.log.storage.manager.class.name
remote.log.storage.manager.class.path
remote.log.storage.manager.impl.prefix
remote.log.storage.system.enable
replica.socket.receive.buffer.bytes
replication.quota.window.num
replication.quota.window.size.seconds
sasl.client.callback.handler.class
sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin
sasl.kerberos.principal.to.local.rules
sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class
sasl.login.class
sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds
sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms
sasl.mechanism.controller.protocol
sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.token.endpoint.url
sasl.server.callback.handler.class
security.providers
server.max.startup.time.ms
socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms
ssl.allow.dn.changes
ssl.allow.san.changes
ssl.cipher.suites
ssl.client.auth
ssl.enabled.protocols
ssl.endpoint.identification.algorithm
ssl.engine.factory.class
ssl.key.password
ssl.keymanager.algorithm
ssl.keystore.certificate.chain
ssl.keystore.key
ssl.keystore.location
ssl.keystore.password
ssl.keystore.type
ssl.principal.mapping.rules
ssl.protocol
ssl.provider
ssl.secure.random.implementation
ssl.trustmanager.algorithm
ssl.truststore.certificates
ssl.truststore.location
ssl.truststore.password
ssl.truststore.type
telemetry.max.bytes
transaction.state.log.load.buffer.size
unclean.leader.election.interval.ms
unstable.api.versions.enable
unstable.feature.versions.enable
zookeeper.clientCnxnSocket
zookeeper.max.in.flight.requests
zookeeper.metadata.migration.enable
zookeeper.metadata.migration.min.batch.size
zookeeper.ssl.cipher.suites
zookeeper.ssl.client.enable
zookeeper.ssl.crl.enable
zookeeper.ssl.enabled.protocols
zookeeper.ssl.endpoint.identification.algorithm
zookeeper.ssl.keystore.location
zookeeper.ssl.keystore.password
zookeeper.ssl.keystore.type
zookeeper.ssl.ocsp.enable
zookeeper.ssl.protocol
zookeeper.ssl.truststore.location
zookeeper.ssl.truststore.password
zookeeper.ssl.truststore.type
`)
