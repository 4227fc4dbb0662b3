package penstock.compat;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/** Members of one group read a topic while it is written; one comes late, one leaves. Offsets are committed by hand, at each handover too. */
final class Group {
    private final Env env;
    private final String protocol;
    private final Seen seen = new Seen();
    private final AtomicInteger sent = new AtomicInteger();
    private final AtomicInteger handovers = new AtomicInteger();
    private final AtomicReference<Throwable> failed = new AtomicReference<>();
    private volatile boolean written;

    private Group(Env env, String protocol) {
        this.env = env;
        this.protocol = protocol;
    }

    static String run(Env env, String protocol) throws Exception {
        return new Group(env, protocol).play();
    }

    private String play() throws Exception {
        env.topics(env.name());
        Thread writer = new Thread(() -> guard(this::write));
        writer.start();
        List<Member> members = new ArrayList<>(List.of(new Member(), new Member()));
        await("two members with partitions", () -> members.stream().allMatch(m -> !m.owned.isEmpty()));
        members.add(new Member());
        await("a third with partitions", () -> members.stream().allMatch(m -> !m.owned.isEmpty()));
        more(1000);
        members.remove(0).leave();
        await("all partitions with those who stay", () -> members.stream().mapToInt(m -> m.owned.size()).sum() == Env.PARTITIONS);
        more(1000);
        written = true;
        writer.join();
        await("all records read", () -> seen.count() == sent.get());
        for (Member m : members) {
            m.leave();
        }
        check();
        env.committedToTheEnd(env.name(), env.name());
        return String.format("three members, one late, one leaving: %d records, each once and in order of its key, %d handovers, offsets committed",
            sent.get(), handovers.get());
    }

    private void more(int n) throws Exception {
        int until = seen.count() + n;
        await(n + " more records", () -> seen.count() >= until);
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

    private interface Work {
        void run() throws Exception;
    }

    private void guard(Work w) {
        try {
            w.run();
        } catch (Throwable t) {
            failed.compareAndSet(null, t);
        }
    }

    /** Some thousand records a second, idempotent with acks=all, as is the client's default. */
    private void write() throws Exception {
        try (KafkaProducer<String, String> p = env.producer("linger.ms", "5")) {
            for (int i = 0; !written; i++) {
                var done = p.send(new ProducerRecord<>(env.name(), "" + i % Env.KEYS, "" + i / Env.KEYS));
                sent.incrementAndGet();
                if (i % 20 == 0) {
                    Thread.sleep(10);
                }
                if (i % 1000 == 0) {
                    done.get();
                }
            }
            p.flush();
        } catch (ExecutionException e) {
            throw (Exception) e.getCause();
        }
    }

    private final class Member implements ConsumerRebalanceListener {
        final Set<TopicPartition> owned = ConcurrentHashMap.newKeySet();
        private final Thread thread = new Thread(() -> guard(this::read));
        private volatile boolean leaving;
        private KafkaConsumer<String, String> consumer;

        Member() {
            thread.start();
        }

        void leave() throws InterruptedException {
            leaving = true;
            thread.join();
        }

        private void read() {
            String[] settings = protocol.equals("classic")
                ? new String[] {"partition.assignment.strategy", CooperativeStickyAssignor.class.getName(), "heartbeat.interval.ms", "500", "session.timeout.ms", "10000"}
                : new String[] {"group.protocol", "consumer"};
            try (KafkaConsumer<String, String> c = consumer = env.consumer(with(settings, "group.id", env.name()))) {
                c.subscribe(List.of(env.name()), this);
                while (!leaving) {
                    for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(100))) {
                        seen.take(r.key(), r.value());
                    }
                    try {
                        c.commitSync();
                    } catch (RebalanceInProgressException e) {
                        // The next poll joins; what it takes away is committed in onPartitionsRevoked.
                    }
                }
            }
            owned.clear();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            owned.addAll(partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) {
                consumer.commitSync();
                handovers.incrementAndGet();
            }
            partitions.forEach(owned::remove);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            throw new IllegalStateException("lost " + partitions);
        }
    }

    private static String[] with(String[] settings, String... more) {
        List<String> all = new ArrayList<>(List.of(settings));
        all.addAll(List.of(more));
        return all.toArray(new String[0]);
    }
}
