package penstock.compat;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Two workers move records from one topic to another, records and offsets in one transaction; every third one is aborted, and one worker leaves. */
final class Transactions {
    private static final int RECORDS = 3000;

    private final Env env;
    private final String in, out;
    private final AtomicInteger aborted = new AtomicInteger(), moved = new AtomicInteger();
    private final AtomicReference<Throwable> failed = new AtomicReference<>();

    private Transactions(Env env) {
        this.env = env;
        in = env.name() + "-in";
        out = env.name() + "-out";
    }

    static String run(Env env) throws Exception {
        return new Transactions(env).play();
    }

    private String play() throws Exception {
        env.topics(in, out);
        try (KafkaProducer<String, String> p = env.producer()) {
            for (int i = 0; i < RECORDS; i++) {
                p.send(new ProducerRecord<>(in, "" + i % Env.KEYS, "" + i / Env.KEYS));
            }
        }
        Worker one = new Worker(1), two = new Worker(2);
        await("both at work", () -> one.commits > 1 && two.commits > 1);
        one.leave();
        await("all moved", () -> moved.get() >= RECORDS);
        two.leave();
        check();
        env.committedToTheEnd(env.name(), in);
        Seen seen = new Seen();
        env.readAll(out, "read_committed", r -> seen.take(r.key(), r.value()));
        int all = env.readAll(out, "read_uncommitted", r -> { });
        if (seen.count() != RECORDS || all != RECORDS + aborted.get()) {
            throw new IllegalStateException(seen.count() + " committed, want " + RECORDS + "; " + all + " in all, want " + aborted.get() + " more");
        }
        fenced();
        return String.format("two workers, one leaving: %d records, each once and in order of its key, aborted ones not seen; a second producer of the id fences the first",
            RECORDS);
    }

    private void await(String what, Env.Condition c) throws Exception {
        Env.await(what, () -> {
            check();
            return c.holds();
        });
    }

    private void check() {
        if (failed.get() != null) {
            throw new IllegalStateException(failed.get());
        }
    }

    private final class Worker {
        volatile int commits;
        private volatile boolean leaving;
        private final int number;
        private final Thread thread;

        Worker(int number) {
            this.number = number;
            thread = new Thread(() -> {
                try {
                    work();
                } catch (Throwable t) {
                    failed.compareAndSet(null, t);
                }
            });
            thread.start();
        }

        void leave() throws InterruptedException {
            leaving = true;
            thread.join();
        }

        private void work() {
            try (KafkaConsumer<String, String> c = env.consumer("group.id", env.name(), "max.poll.records", "40", "isolation.level", "read_committed",
                "heartbeat.interval.ms", "500", "session.timeout.ms", "10000");
                KafkaProducer<String, String> p = env.producer("transactional.id", env.name() + "-" + number)) {
                p.initTransactions();
                c.subscribe(List.of(in));
                for (int n = 1; !leaving;) {
                    ConsumerRecords<String, String> records = c.poll(Duration.ofMillis(100));
                    if (records.isEmpty()) {
                        continue;
                    }
                    p.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> behind = new HashMap<>();
                    for (ConsumerRecord<String, String> r : records) {
                        p.send(new ProducerRecord<>(out, r.key(), r.value()));
                        behind.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                    }
                    boolean commit = n++ % 3 != 0;
                    try {
                        p.sendOffsetsToTransaction(behind, c.groupMetadata());
                    } catch (CommitFailedException e) {
                        commit = false; // the group has moved on without us; the next poll tells what is ours
                    }
                    if (commit) {
                        p.commitTransaction();
                        commits++;
                        moved.addAndGet(records.count());
                        continue;
                    }
                    p.flush();
                    p.abortTransaction();
                    aborted.addAndGet(records.count());
                    for (TopicPartition tp : records.partitions()) {
                        c.seek(tp, records.records(tp).get(0).offset());
                    }
                }
            }
        }
    }

    /** A zombie, whose id another one has taken over, cannot commit; and what it wrote is not seen. */
    private void fenced() throws Exception {
        String id = env.name() + "-zombie";
        try (KafkaProducer<String, String> zombie = env.producer("transactional.id", id); KafkaProducer<String, String> heir = env.producer("transactional.id", id)) {
            zombie.initTransactions();
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(out, "zombie", "zombie")).get();
            heir.initTransactions();
            try {
                zombie.commitTransaction();
                throw new IllegalStateException("the zombie has committed");
            } catch (ProducerFencedException | InvalidProducerEpochException e) {
                // as it must be
            }
            heir.beginTransaction();
            heir.send(new ProducerRecord<>(out, "heir", "heir"));
            heir.commitTransaction();
        }
        AtomicInteger heirs = new AtomicInteger();
        env.readAll(out, "read_committed", r -> {
            if (r.key().equals("zombie")) {
                throw new IllegalStateException("the zombie's record is seen");
            }
            if (r.key().equals("heir")) {
                heirs.incrementAndGet();
            }
        });
        if (heirs.get() != 1) {
            throw new IllegalStateException(heirs.get() + " records of the heir");
        }
    }
}
