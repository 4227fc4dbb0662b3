package penstock.compat;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * Two instances of a Kafka Streams application with exactly_once_v2. Now and then its code throws, which aborts the transaction and replaces the thread; one instance
 * is closed, its state thrown away, and started again, so that the state comes from the changelog.
 */
final class Streaming implements AutoCloseable {
    static final AtomicInteger THROWN = new AtomicInteger();
    private static final AtomicInteger CALLS = new AtomicInteger();

    private static final class Trouble extends RuntimeException {
        Trouble() {
            super("trouble that the program makes itself");
        }
    }

    private final Env env;
    private final Topology topology;
    private final Path state;
    private final KafkaStreams[] instances = new KafkaStreams[2];

    Streaming(Env env, Topology topology) throws IOException {
        this.env = env;
        this.topology = topology;
        state = Files.createTempDirectory("streams");
        for (int i = 0; i < instances.length; i++) {
            start(i);
        }
    }

    /** To be called for each record: fails at every 997th, five times in all. */
    static void trouble() {
        if (CALLS.incrementAndGet() % 997 == 0 && THROWN.get() < 5) {
            THROWN.incrementAndGet();
            throw new Trouble();
        }
    }

    private void start(int i) {
        Properties p = env.properties(
            StreamsConfig.APPLICATION_ID_CONFIG, env.name(), StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.STATE_DIR_CONFIG, state.resolve("" + i).toString(), StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2",
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100", StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0",
            StreamsConfig.REPLICATION_FACTOR_CONFIG, "3",
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName(),
            StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName(),
            "consumer.auto.offset.reset", "earliest", "consumer.heartbeat.interval.ms", "500",
            // A thread that dies does not leave its group: for so long its partitions wait.
            "consumer.session.timeout.ms", "10000",
            // Kafka Streams' own ten seconds are too few on a machine that is busy with other things.
            "producer.transaction.timeout.ms", "60000");
        instances[i] = new KafkaStreams(topology, p);
        instances[i].setUncaughtExceptionHandler(e -> {
            for (Throwable t = e; t != null; t = t.getCause()) {
                if (t instanceof Trouble) {
                    return StreamThreadExceptionResponse.REPLACE_THREAD;
                }
            }
            e.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        instances[i].start();
    }

    void restartWithoutState(int i) throws IOException {
        stop(i);
        delete(state.resolve("" + i));
        start(i);
    }

    KafkaStreams[] instances() {
        return instances;
    }

    void running() throws Exception {
        Env.await("both instances running", () -> {
            alive();
            return Arrays.stream(instances).allMatch(s -> s.state() == KafkaStreams.State.RUNNING);
        });
    }

    void alive() {
        for (KafkaStreams s : instances) {
            if (s.state().hasStartedOrFinishedShuttingDown()) {
                throw new IllegalStateException("an instance has ended: " + s.state());
            }
        }
    }

    private void stop(int i) {
        if (!instances[i].close(Duration.ofSeconds(60))) {
            throw new IllegalStateException("instance " + i + " does not close");
        }
    }

    @Override
    public void close() throws IOException {
        for (int i = 0; i < instances.length; i++) {
            stop(i);
        }
        delete(state);
    }

    private static void delete(Path dir) throws IOException {
        try (Stream<Path> files = Files.walk(dir)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }
}
