package penstock.compat;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/** Counts words. Every count is written, so of a word that came n times the result must be 1, 2, ..., n, each once and in this order. */
final class WordCount {
    private static final int LINES = 4000;
    private static final String[] WORDS = "a topic is a log and a log is a list of records that only grows at its end where the next record goes".split(" ");

    static String run(Env env) throws Exception {
        String in = env.name() + "-lines", out = env.name() + "-counts";
        env.topics(in, out);
        StreamsBuilder b = new StreamsBuilder();
        b.<String, String>stream(in)
            .peek((k, line) -> Streaming.trouble())
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((k, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts").withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream().mapValues(n -> "" + n)
            .to(out, Produced.with(Serdes.String(), Serdes.String()));
        Map<String, Integer> want = new HashMap<>();
        try (Streaming streams = new Streaming(env, b.build())) {
            streams.running();
            Random random = new Random(1);
            write(env, in, random, want);
            counted(streams, env, out, want);
            streams.restartWithoutState(0);
            write(env, in, random, want);
            streams.running();
            counted(streams, env, out, want);
            asked(streams, want);
        }
        Map<String, Integer> last = new HashMap<>();
        env.readAll(out, "read_committed", r -> {
            int n = Integer.parseInt(r.value());
            if (n != last.getOrDefault(r.key(), 0) + 1) {
                throw new IllegalStateException(r.key() + ": " + n + " after " + last.get(r.key()));
            }
            last.put(r.key(), n);
        });
        if (!last.equals(want)) {
            throw new IllegalStateException("counted " + last + ", want " + want);
        }
        if (Streaming.THROWN.get() == 0) {
            throw new IllegalStateException("no thread has been in trouble");
        }
        return String.format("exactly_once_v2, two instances, one restarted without its state, %d threads that die: %d words of %d lines, every step of every count once",
            Streaming.THROWN.get(), want.values().stream().mapToInt(i -> i).sum(), 2 * LINES);
    }

    private static void write(Env env, String in, Random random, Map<String, Integer> want) {
        try (KafkaProducer<String, String> p = env.producer()) {
            for (int i = 0; i < LINES; i++) {
                StringBuilder line = new StringBuilder();
                for (int n = 1 + random.nextInt(4); n > 0; n--) {
                    String word = WORDS[random.nextInt(WORDS.length)];
                    want.merge(word, 1, Integer::sum);
                    line.append(word).append(n > 1 ? " " : "");
                }
                p.send(new ProducerRecord<>(in, "" + i, line.toString()));
            }
        }
    }

    private static void counted(Streaming streams, Env env, String out, Map<String, Integer> want) throws Exception {
        Env.await("all words counted", () -> {
            streams.alive();
            Map<String, Integer> got = new HashMap<>();
            env.readAll(out, "read_committed", r -> got.merge(r.key(), Integer.parseInt(r.value()), Math::max));
            return got.equals(want);
        });
    }

    /** The state stores of both instances, asked directly, say the same. */
    private static void asked(Streaming streams, Map<String, Integer> want) throws Exception {
        Env.await("the stores to say the same", () -> {
            Map<String, Integer> got = new HashMap<>();
            for (KafkaStreams s : streams.instances()) {
                ReadOnlyKeyValueStore<String, Long> store = s.store(StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.keyValueStore()));
                try (var all = store.all()) {
                    all.forEachRemaining(kv -> got.put(kv.key, kv.value.intValue()));
                }
            }
            return got.equals(want);
        });
    }

    private WordCount() {
    }
}
