"""kafka-python: a group of the classic protocol, and transactions."""
import threading
import time

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from common import BOOTSTRAP, KEYS, NAME, PARTITIONS, Seen, Worker, main, play_group, wait

RECORDS = 1500


def text(n):
    return str(n).encode()


def topics(*names):
    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    admin.create_topics([NewTopic(name=n, num_partitions=PARTITIONS, replication_factor=3, topic_configs={"min.insync.replicas": "2"}) for n in names])
    admin.close()


def consumer(**conf):
    return KafkaConsumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest", **conf)


def partitions(topic):
    return [TopicPartition(topic, p) for p in range(PARTITIONS)]


def committed_to_the_end(topic):
    c = consumer(group_id=NAME, enable_auto_commit=False)
    want = c.end_offsets(partitions(topic))
    got = {p: c.committed(p) for p in want}
    c.close()
    assert all(got[p] == end for p, end in want.items() if end > 0), f"committed {got}, the ends are {want}"


def read_all(topic, isolation, take):
    """Reads the topic to its end and gives the number of records."""
    c = consumer(group_id=None, isolation_level=isolation)
    c.assign(partitions(topic))
    ends, n, deadline = c.end_offsets(partitions(topic)), 0, time.monotonic() + 60
    while not all(c.position(p) >= end for p, end in ends.items()):
        assert time.monotonic() < deadline, f"the end of {topic} does not come: {ends}, {[c.position(p) for p in ends]}"
        for records in c.poll(timeout_ms=200).values():
            for r in records:
                take(r.key, r.value)
                n += 1
    c.close()
    return n


class Member(Worker):
    """Commits by itself what it has been given, as the client does by default: now and then, before each rebalance and at the end."""

    def __init__(self, seen):
        self.seen, self.owned = seen, set()
        super().__init__(Member.read)

    def read(self):
        owned = self.owned

        class Listener(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked):
                owned.difference_update(revoked)

            def on_partitions_assigned(self, assigned):
                owned.update(assigned)

        c = consumer(group_id=NAME, enable_auto_commit=True, auto_commit_interval_ms=500, session_timeout_ms=10000, heartbeat_interval_ms=500)
        c.subscribe([NAME], listener=Listener())
        while not self.leaving:
            for records in c.poll(timeout_ms=100).values():
                for r in records:
                    self.seen.take(r.key, r.value)
        c.close()
        owned.clear()


def group():
    topics(NAME)
    seen, sent = Seen(), [0]

    def write(self):
        p = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", enable_idempotence=True, linger_ms=5)
        while not self.leaving:
            done = []
            for _ in range(20):
                i = sent[0]
                done.append(p.send(NAME, key=text(i % KEYS), value=text(i // KEYS)))
                sent[0] += 1
            for d in done:
                d.get(timeout=60)
            time.sleep(0.01)
        p.close()

    play_group(lambda: Member(seen), lambda: Worker(write), seen, lambda: sent[0])
    committed_to_the_end(NAME)
    return f"three members, one late, one leaving: {sent[0]} records, each once and in order of its key, offsets committed"


def transactions():
    source, target = NAME + "-in", NAME + "-out"
    topics(source, target)
    p = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", enable_idempotence=True)
    for i in range(RECORDS):
        p.send(source, key=text(i % KEYS), value=text(i // KEYS))
    p.close()
    lock, moved, aborted, commits = threading.Lock(), [0], [0], {1: 0, 2: 0}

    def worker(number):
        def work(self):
            c = consumer(group_id=NAME, enable_auto_commit=False, isolation_level="read_committed", max_poll_records=30, session_timeout_ms=10000,
                         heartbeat_interval_ms=500)
            c.subscribe([source])
            p = KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=f"{NAME}-{number}")
            p.init_transactions()
            n = 0
            while not self.leaving:
                got = c.poll(timeout_ms=100)
                if not got:
                    continue
                n += 1
                count, behind = 0, {}
                p.begin_transaction()
                for tp, records in got.items():
                    for r in records:
                        p.send(target, key=r.key, value=r.value)
                        count += 1
                    behind[tp] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
                p.send_offsets_to_transaction(behind, c.group_metadata())
                if n % 3 != 0:
                    p.commit_transaction()
                    with lock:
                        moved[0] += count
                        commits[number] += 1
                    continue
                p.flush()
                p.abort_transaction()
                with lock:
                    aborted[0] += count
                for tp, records in got.items():
                    c.seek(tp, records[0].offset)
            p.close()
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
    zombie, heir = (KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=NAME + "-zombie") for _ in range(2))
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.send(topic, key=b"zombie", value=b"zombie").get(timeout=30)
    heir.init_transactions()
    try:
        zombie.commit_transaction()
    except KafkaError as e:
        assert type(e).__name__ in ("ProducerFencedError", "InvalidProducerEpochError"), repr(e)
    else:
        raise AssertionError("the zombie has committed")
    heir.begin_transaction()
    heir.send(topic, key=b"heir", value=b"heir")
    heir.commit_transaction()
    keys = []
    read_all(topic, "read_committed", lambda k, v: keys.append(k))
    assert keys.count(b"heir") == 1 and b"zombie" not in keys, "the zombie's record is seen, or its heir's is not"


main({"group": group, "transactions": transactions})
