import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Drives Apache Kafka's own client. Options are name=value arguments: it has no JSON reader. */
public final class Driver {
    static final Map<String, String> options = new HashMap<>();
    static final CountDownLatch stopping = new CountDownLatch(1);

    public static void main(String[] arguments) throws Exception {
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            options.put(pair[0], pair[1]);
        }
        Thread waiting = new Thread(Driver::waitForTheEndOfStdin);
        waiting.setDaemon(true);
        waiting.start();
        switch (arguments[0]) {
            case "produce" -> produce();
            case "consume" -> consume();
            case "member" -> member();
            case "transform" -> transform();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        tell("{\"done\": true}");
    }

    static void waitForTheEndOfStdin() {
        try {
            while (System.in.read() >= 0) {}
        } catch (IOException error) {
            // A closed pipe is an end, too.
        }
        stopping.countDown();
    }

    static boolean told() {
        return stopping.getCount() == 0;
    }

    static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static String quoted(Object value) {
        if (value == null) {
            return "null";
        }
        return '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + '"';
    }

    static Properties connection() {
        Properties given = new Properties();
        given.put("bootstrap.servers", options.get("brokers"));
        given.put("security.protocol", "SASL_PLAINTEXT");
        given.put("sasl.mechanism", "PLAIN");
        given.put("sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"anybody\""
                + " password=\"" + options.get("password") + "\";");
        given.put("reconnect.backoff.max.ms", "500");
        return given;
    }

    static KafkaProducer<String, String> producer(Map<String, Object> more) {
        Properties given = connection();
        given.putAll(more);
        return new KafkaProducer<>(given, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer() {
        Properties given = connection();
        given.put("auto.offset.reset", "earliest");
        given.put("enable.auto.commit", "false");
        given.put("isolation.level", "read_committed");
        given.put("session.timeout.ms", "6000");
        given.put("heartbeat.interval.ms", "500");
        given.put("max.poll.records", "20");
        if (options.containsKey("group")) {
            given.put("group.id", options.get("group"));
        }
        if (options.containsKey("instance")) {
            given.put("group.instance.id", options.get("instance"));
        }
        return new KafkaConsumer<>(given, new StringDeserializer(), new StringDeserializer());
    }

    static void produce() throws Exception {
        Map<String, Object> more = Map.of(
            "enable.idempotence", options.get("idempotent"),
            "compression.type", options.get("codec"),
            "delivery.timeout.ms", 120_000);
        int first = Integer.parseInt(options.get("first"));
        int end = first + Integer.parseInt(options.get("count"));
        try (KafkaProducer<String, String> producer = producer(more)) {
            for (int n = first; n < end; n++) {
                int number = n;
                var record = new ProducerRecord<>(options.get("topic"), "k" + n % 8, "" + n);
                record.headers().add("from", options.get("sender").getBytes());
                producer.send(record, (done, error) -> tell(error == null
                    ? "{\"acked\": " + number + "}"
                    : "{\"failed\": " + number + ", \"error\": " + quoted(error) + "}"));
                Thread.sleep(Long.parseLong(options.get("pause_ms")));
            }
        }
    }

    static void tellRecord(ConsumerRecord<String, String> one) {
        Header from = one.headers().lastHeader("from");
        tell("{\"record\": [" + quoted(one.topic()) + ", " + one.partition() + ", " + one.offset()
            + ", " + quoted(one.key()) + ", " + quoted(one.value()) + ", "
            + quoted(from == null ? null : new String(from.value())) + "]}");
    }

    static void consume() {
        try (KafkaConsumer<String, String> reading = consumer()) {
            String topic = options.get("topic");
            var parts = reading.partitionsFor(topic).stream()
                .map(one -> new TopicPartition(topic, one.partition())).toList();
            reading.assign(parts);
            for (int left = Integer.parseInt(options.get("count")); left > 0;) {
                for (ConsumerRecord<String, String> one : reading.poll(Duration.ofMillis(200))) {
                    tellRecord(one);
                    left--;
                }
            }
        }
    }

    static ConsumerRebalanceListener telling(KafkaConsumer<String, String> reading) {
        return new ConsumerRebalanceListener() {
            @Override public void onPartitionsRevoked(Collection<TopicPartition> revoked) {}

            @Override public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                tell("{\"ready\": true, \"assigned\": [" + reading.assignment().stream()
                    .map(one -> "[" + quoted(one.topic()) + ", " + one.partition() + "]")
                    .collect(Collectors.joining(", ")) + "]}");
            }
        };
    }

    static void member() {
        try (KafkaConsumer<String, String> reading = consumer()) {
            reading.subscribe(List.of(options.get("topic")), telling(reading));
            while (!told()) {
                for (ConsumerRecord<String, String> one : reading.poll(Duration.ofMillis(100))) {
                    tellRecord(one);
                }
                try {
                    reading.commitSync();
                } catch (KafkaException error) {
                    tell("{\"error\": " + quoted(error) + "}");
                }
            }
        }
    }

    static void transform() {
        try (KafkaConsumer<String, String> reading = consumer()) {
            reading.subscribe(List.of(options.get("topic")), telling(reading));
            while (!told()) {
                Map<String, Object> more = Map.of(
                    "transactional.id", options.get("transactional_id"),
                    "transaction.timeout.ms", 30_000);
                KafkaProducer<String, String> writing = producer(more);
                try {
                    writing.initTransactions();
                    work(reading, writing);
                } catch (KafkaException error) {
                    tell("{\"retry\": " + quoted(error) + "}");
                    rewind(reading);
                } finally {
                    writing.close(Duration.ofSeconds(1));
                }
            }
        }
    }

    static void work(KafkaConsumer<String, String> reading, KafkaProducer<String, String> writing) {
        for (int rounds = 1; !told();) {
            List<String> values = new ArrayList<>();
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            var batch = reading.poll(Duration.ofMillis(200));
            if (batch.isEmpty()) {
                continue;
            }
            writing.beginTransaction();
            for (ConsumerRecord<String, String> one : batch) {
                writing.send(new ProducerRecord<>(options.get("output"), one.key(), one.value()));
                values.add(one.value());
                ends.put(new TopicPartition(one.topic(), one.partition()),
                    new OffsetAndMetadata(one.offset() + 1));
            }
            writing.sendOffsetsToTransaction(ends, reading.groupMetadata());
            if (rounds++ % 4 == 0) {
                writing.abortTransaction();
                rewind(reading);
                continue;
            }
            writing.commitTransaction();
            tell("{\"committed\": [" + String.join(", ", values) + "]}");
        }
    }

    /** To what the group has committed. */
    static void rewind(KafkaConsumer<String, String> reading) {
        var committed = reading.committed(reading.assignment());
        committed.forEach((part, at) -> reading.seek(part, at == null ? 0 : at.offset()));
    }
}
