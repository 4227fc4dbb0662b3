package penstock.compat;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.WindowStore;

/** Sums amounts by key and by ten seconds of the records' own time. Every sum is written: the last one of a window must be right, and their number that of the records. */
final class Windows {
    private static final int RECORDS = 4000;
    private static final long SIZE = 10_000;

    /** What is known of one key's window: its sum and the number of its records, or of its results. */
    private record Sum(long amount, int n) {
        Sum plus(long more) {
            return new Sum(amount + more, n + 1);
        }
    }

    static String run(Env env) throws Exception {
        String in = env.name() + "-amounts", out = env.name() + "-sums";
        env.topics(in, out);
        StreamsBuilder b = new StreamsBuilder();
        b.<String, String>stream(in)
            .peek((k, v) -> Streaming.trouble())
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(SIZE), Duration.ofHours(1)))
            .aggregate(() -> 0L, (k, v, sum) -> sum + Long.parseLong(v),
                Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("sums").withKeySerde(Serdes.String()).withValueSerde(Serdes.Long())
                    .withRetention(Duration.ofHours(2)))
            .toStream().map((w, sum) -> KeyValue.pair(w.key() + "@" + w.window().start(), "" + sum))
            .to(out, Produced.with(Serdes.String(), Serdes.String()));
        Map<String, Sum> want = new HashMap<>();
        try (Streaming streams = new Streaming(env, b.build())) {
            streams.running();
            Random random = new Random(2);
            long began = System.currentTimeMillis() / SIZE * SIZE;
            write(env, in, random, began, want);
            summed(streams, env, out, want);
            streams.restartWithoutState(1);
            write(env, in, random, began + 5 * SIZE / 2, want);
            streams.running();
            summed(streams, env, out, want);
        }
        Map<String, Sum> got = results(env, out);
        if (!got.equals(want)) {
            throw new IllegalStateException("got " + got + "\nwant " + want);
        }
        if (Streaming.THROWN.get() == 0) {
            throw new IllegalStateException("no thread has been in trouble");
        }
        return String.format("exactly_once_v2, two instances, one restarted without its state, %d threads that die: %d records in %d windows, every step of every sum once",
            Streaming.THROWN.get(), 2 * RECORDS, want.size());
    }

    private static void write(Env env, String in, Random random, long from, Map<String, Sum> want) {
        try (KafkaProducer<String, String> p = env.producer()) {
            for (int i = 0; i < RECORDS; i++) {
                String key = "" + random.nextInt(Env.KEYS);
                long at = from + random.nextInt((int) (5 * SIZE)), amount = 1 + random.nextInt(1000);
                want.merge(key + "@" + at / SIZE * SIZE, new Sum(amount, 1), (a, b) -> a.plus(b.amount()));
                p.send(new ProducerRecord<>(in, null, at, key, "" + amount));
            }
        }
    }

    /** Amounts are positive, so of a window's sums the greatest is the last. */
    private static Map<String, Sum> results(Env env, String out) {
        Map<String, Sum> got = new HashMap<>();
        env.readAll(out, "read_committed", r -> {
            Sum old = got.getOrDefault(r.key(), new Sum(0, 0));
            long sum = Long.parseLong(r.value());
            if (sum <= old.amount()) {
                throw new IllegalStateException(r.key() + ": " + sum + " after " + old.amount());
            }
            got.put(r.key(), new Sum(sum, old.n() + 1));
        });
        return got;
    }

    private static void summed(Streaming streams, Env env, String out, Map<String, Sum> want) throws Exception {
        Env.await("all sums", () -> {
            streams.alive();
            return results(env, out).equals(want);
        });
    }

    private Windows() {
    }
}
