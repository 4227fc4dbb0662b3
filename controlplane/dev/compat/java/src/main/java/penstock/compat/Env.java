package penstock.compat;

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The brokers, names of our own, and clients with the settings that all programs want. */
record Env(String bootstrap, String name) {
    static final int KEYS = 60;
    static final int PARTITIONS = 6;

    void topics(String... names) throws Exception {
        try (Admin admin = Admin.create(properties())) {
            admin.createTopics(Arrays.stream(names).map(n -> new NewTopic(n, PARTITIONS, (short) 3)
                .configs(Map.of("min.insync.replicas", "2"))).toList()).all().get();
        }
    }

    Properties properties(String... settings) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < settings.length; i += 2) {
            p.put(settings[i], settings[i + 1]);
        }
        return p;
    }

    KafkaProducer<String, String> producer(String... settings) {
        return new KafkaProducer<>(properties(settings), new StringSerializer(), new StringSerializer());
    }

    KafkaConsumer<String, String> consumer(String... settings) {
        Properties p = properties("enable.auto.commit", "false", "auto.offset.reset", "earliest");
        p.putAll(properties(settings));
        return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void await(String what, Condition c) throws Exception {
        long end = System.nanoTime() + Duration.ofMinutes(4).toNanos();
        while (!c.holds()) {
            if (System.nanoTime() > end) {
                throw new TimeoutException("not within four minutes: " + what);
            }
            Thread.sleep(20);
        }
    }

    /** How many records the topic's partitions end with; markers of transactions count. */
    Map<TopicPartition, Long> ends(String topic) {
        try (KafkaConsumer<String, String> c = consumer()) {
            return c.endOffsets(partitions(topic));
        }
    }

    List<TopicPartition> partitions(String topic) {
        return java.util.stream.IntStream.range(0, PARTITIONS).mapToObj(p -> new TopicPartition(topic, p)).toList();
    }

    interface Reading {
        void take(ConsumerRecord<String, String> r);
    }

    /** Reads the topic from its start to the end that it has now, and gives the number of records. */
    int readAll(String topic, String isolation, Reading reading) {
        int n = 0;
        try (KafkaConsumer<String, String> c = consumer("isolation.level", isolation)) {
            List<TopicPartition> all = partitions(topic);
            c.assign(all);
            c.seekToBeginning(all);
            Map<TopicPartition, Long> ends = c.endOffsets(all);
            long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (!all.stream().allMatch(p -> c.position(p) >= ends.get(p))) {
                for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(200))) {
                    reading.take(r);
                    n++;
                }
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("after a minute the end of " + topic + " is not reached (" + isolation + "): " + positions(c, all)
                        + ", ends " + ends);
                }
            }
        }
        return n;
    }

    private static Map<TopicPartition, Long> positions(KafkaConsumer<String, String> c, List<TopicPartition> all) {
        Map<TopicPartition, Long> m = new HashMap<>();
        all.forEach(p -> m.put(p, c.position(p)));
        return m;
    }

    /** The group must have committed the topic's ends. */
    void committedToTheEnd(String group, String topic) throws Exception {
        Map<TopicPartition, Long> ends = ends(topic);
        try (Admin admin = Admin.create(properties())) {
            var committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            ends.forEach((p, end) -> {
                var o = committed.get(p);
                if (end > 0 && (o == null || o.offset() != end)) {
                    throw new IllegalStateException(p + ": committed " + o + ", its end is " + end);
                }
            });
        }
    }
}
