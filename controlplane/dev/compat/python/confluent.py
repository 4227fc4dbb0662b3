"""librdkafka, by confluent-kafka: groups of the classic protocol (cooperative-sticky) and of KIP-848, and transactions."""
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from common import BOOTSTRAP, KEYS, NAME, PARTITIONS, Seen, Worker, main, play_group, wait

BASE = {"bootstrap.servers": BOOTSTRAP}
RECORDS = 3000


def topics(*names):
    new = [NewTopic(n, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for n in names]
    admin = AdminClient(BASE)  # it must live as long as its futures
    for done in admin.create_topics(new).values():
        done.result(30)


def consumer(**conf):
    return Consumer({**BASE, "enable.auto.commit": False, "auto.offset.reset": "earliest", **conf})


def good(message):
    if message.error():
        raise KafkaException(message.error())
    return message


def ends(c, topic):
    return {p: c.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(PARTITIONS)}


def committed_to_the_end(topic):
    c = consumer(**{"group.id": NAME})
    want = ends(c, topic)
    got = {o.partition: o.offset for o in c.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], timeout=30)}
    c.close()
    assert all(got[p] == want[p] for p in want if want[p] > 0), f"committed {got}, the ends are {want}"


def read_all(topic, isolation, take):
    """Reads the topic to its end and gives the number of records."""
    c = consumer(**{"group.id": NAME + "-reader", "isolation.level": isolation, "enable.partition.eof": True})
    c.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    at_end, n = set(), 0
    while len(at_end) < PARTITIONS:
        m = c.poll(60)
        assert m is not None, f"the end of {topic} does not come"
        if m.error() and m.error().name() == "_PARTITION_EOF":
            at_end.add(m.partition())
            continue
        good(m)
        take(m.key(), m.value())
        n += 1
    c.close()
    return n


class Member(Worker):
    def __init__(self, conf, seen):
        self.conf, self.seen, self.owned, self.at = conf, seen, set(), {}
        super().__init__(Member.read)

    def read(self):
        c = consumer(**{"group.id": NAME, **self.conf})
        # One of librdkafka's rules: a cooperative member changes its assignment by incremental_(un)assign.
        cooperative = self.conf.get("partition.assignment.strategy") == "cooperative-sticky" or "group.protocol" in self.conf

        def assigned(c, parts):
            (c.incremental_assign if cooperative else c.assign)(parts)
            self.owned |= {p.partition for p in parts}

        def revoked(c, parts):
            self.commit(c)
            (c.incremental_unassign(parts) if cooperative else c.unassign())
            self.owned -= {p.partition for p in parts}
            for p in parts:
                self.at.pop(p.partition, None)

        def lost(c, parts):
            raise AssertionError(f"lost {parts}")

        c.subscribe([NAME], on_assign=assigned, on_revoke=revoked, on_lost=lost)
        while not self.leaving:
            for m in c.consume(200, timeout=0.1):
                good(m)
                self.seen.take(m.key(), m.value())
                self.at[m.partition()] = m.offset() + 1
            self.commit(c)
        c.close()
        self.owned.clear()

    def commit(self, c):
        if not self.at:
            return
        offsets = [TopicPartition(NAME, p, o) for p, o in self.at.items()]
        try:
            for o in c.commit(offsets=offsets, asynchronous=False):
                if o.error:
                    raise KafkaException(o.error)
        except KafkaException as e:
            # The library joins in the background, and the group may be a generation on: committed again after the next poll, or when the partition is revoked.
            if e.args[0].name() not in ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH"):
                raise


def group(conf):
    topics(NAME)
    seen, sent = Seen(), [0]

    def write(self):
        p = Producer({**BASE, "enable.idempotence": True, "linger.ms": 5})
        bad = []
        while not self.leaving:
            for _ in range(20):
                i = sent[0]
                p.produce(NAME, key=str(i % KEYS), value=str(i // KEYS), on_delivery=lambda e, m: e and bad.append(e))
                sent[0] += 1
            p.poll(0.01)
            time.sleep(0.01)
        assert p.flush(60) == 0 and not bad, bad

    play_group(lambda: Member(conf, seen), lambda: Worker(write), seen, lambda: sent[0])
    committed_to_the_end(NAME)
    return f"three members, one late, one leaving: {sent[0]} records, each once and in order of its key, offsets committed"


def transactions():
    source, target = NAME + "-in", NAME + "-out"
    topics(source, target)
    p = Producer({**BASE, "enable.idempotence": True})
    for i in range(RECORDS):
        p.produce(source, key=str(i % KEYS), value=str(i // KEYS))
    assert p.flush(60) == 0
    lock, moved, aborted, commits = threading.Lock(), [0], [0], {1: 0, 2: 0}

    def worker(number):
        def work(self):
            c = consumer(**{"group.id": NAME, "isolation.level": "read_committed", "session.timeout.ms": 10000, "heartbeat.interval.ms": 500})
            c.subscribe([source])
            p = Producer({**BASE, "transactional.id": f"{NAME}-{number}"})
            p.init_transactions(30)
            n = 0
            while not self.leaving:
                messages = [good(m) for m in c.consume(40, timeout=0.1)]
                if not messages:
                    continue
                n += 1
                first, behind = {}, {}
                p.begin_transaction()
                for m in messages:
                    p.produce(target, key=m.key(), value=m.value())
                    first.setdefault(m.partition(), m.offset())
                    behind[m.partition()] = m.offset() + 1
                commit = n % 3 != 0
                try:
                    p.send_offsets_to_transaction([TopicPartition(source, q, o) for q, o in behind.items()], c.consumer_group_metadata(), 30)
                    if commit:
                        p.commit_transaction(30)
                except KafkaException as e:
                    if not e.args[0].txn_requires_abort():
                        raise
                    commit = False
                with lock:
                    if commit:
                        moved[0] += len(messages)
                        commits[number] += 1
                        continue
                    aborted[0] += len(messages)
                p.flush(30)
                p.abort_transaction(30)
                for q, o in first.items():
                    c.seek(TopicPartition(source, q, o))
            c.close()

        return Worker(work)

    one, two = worker(1), worker(2)
    wait("both at work", lambda: commits[1] > 1 and commits[2] > 1)
    one.leave()
    wait("all moved", lambda: moved[0] >= RECORDS)
    two.leave()
    committed_to_the_end(source)
    seen = Seen()
    read_all(target, "read_committed", seen.take)
    everything = read_all(target, "read_uncommitted", lambda k, v: None)
    assert seen.count == RECORDS and RECORDS < everything <= RECORDS + aborted[0], (seen.count, everything, aborted[0])
    fenced(target)
    return (f"two workers, one leaving: {RECORDS} records, each once and in order of its key, aborted ones not seen; "
            "a second producer of the id fences the first")


def fenced(topic):
    """A zombie, whose id another one has taken over, cannot commit; and what it wrote is not seen."""
    zombie, heir = (Producer({**BASE, "transactional.id": NAME + "-zombie"}) for _ in range(2))
    zombie.init_transactions(30)
    zombie.begin_transaction()
    zombie.produce(topic, key="zombie", value="zombie")
    assert zombie.flush(30) == 0
    heir.init_transactions(30)
    try:
        zombie.commit_transaction(30)
    except KafkaException as e:
        assert e.args[0].name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"), e
    else:
        raise AssertionError("the zombie has committed")
    heir.begin_transaction()
    heir.produce(topic, key="heir", value="heir")
    heir.commit_transaction(30)
    keys = []
    read_all(topic, "read_committed", lambda k, v: keys.append(k))
    assert keys.count(b"heir") == 1 and b"zombie" not in keys, "the zombie's record is seen, or its heir's is not"


main({
    "group-cooperative": lambda: group({"partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 10000, "heartbeat.interval.ms": 500}),
    "group-consumer": lambda: group({"group.protocol": "consumer"}),
    "transactions": transactions,
})
