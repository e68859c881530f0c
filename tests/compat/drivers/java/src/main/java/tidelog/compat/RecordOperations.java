package tidelog.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producing, and the one consumer that is open at a time. */
final class RecordOperations implements AutoCloseable {
    private static final int TIMEOUT_MS = 10_000;
    private final String bootstrapServers;
    private final List<Map<String, Object>> unread = new ArrayList<>();
    private KafkaConsumer<byte[], byte[]> consumer;

    RecordOperations(String bootstrapServers) {
        this.bootstrapServers = bootstrapServers;
    }

    Map<String, Driver.Operation> operations() {
        return Map.of(
                "produce", this::produce,
                "consumer_open", this::open,
                "consumer_read", this::read,
                "consumer_seek", this::seek,
                "consumer_close", this::closeConsumer);
    }

    // ---- produce ----

    private Map<String, Object> producerSettings(JsonNode arguments) {
        int acks = arguments.get("acks").asInt();
        Map<String, Object> settings = new HashMap<>();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers);
        settings.put(ProducerConfig.ACKS_CONFIG, acks == -1 ? "all" : Integer.toString(acks));
        settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, arguments.get("codec").asText());
        settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG,
                arguments.get("idempotent").asBoolean());
        settings.put(ProducerConfig.LINGER_MS_CONFIG, 20);
        settings.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, 1_500);
        settings.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, TIMEOUT_MS / 2);
        settings.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, TIMEOUT_MS);
        return settings;
    }

    private Object produce(JsonNode arguments) throws Exception {
        List<Object> results = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                producerSettings(arguments), new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : arguments.get("records")) {
                sent.add(send(producer, arguments.get("topic").asText(), record));
            }
            for (Future<RecordMetadata> future : sent) {
                results.add(outcome(future));
            }
        }
        return results;
    }

    private static byte[] bytes(JsonNode text) throws IOException {
        return text.isNull() ? null : text.binaryValue();
    }

    static Future<RecordMetadata> send(
            KafkaProducer<byte[], byte[]> producer, String topic, JsonNode record)
            throws IOException {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        JsonNode partition = record.get("partition");
        JsonNode timestamp = record.get("timestamp_ms");
        ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(
                topic,
                partition.isNull() ? null : partition.asInt(),
                timestamp.isNull() ? null : timestamp.asLong(),
                bytes(record.get("key")),
                bytes(record.get("value")),
                headers);
        try {
            return producer.send(made);
        } catch (RuntimeException refused) {
            return CompletableFuture.failedFuture(refused);
        }
    }

    static Object outcome(Future<RecordMetadata> future) {
        try {
            RecordMetadata metadata = future.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            return Map.of("partition", metadata.partition(), "offset", metadata.offset());
        } catch (Exception failure) {
            return Map.of("error", Driver.describe(failure));
        }
    }

    // ---- consume ----

    private Object open(JsonNode arguments) {
        consumer = new KafkaConsumer<>(
                Map.of(
                        ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers,
                        ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
                        ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, arguments.get("reset").asText(),
                        ConsumerConfig.ISOLATION_LEVEL_CONFIG, arguments.get("isolation").asText(),
                        ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG,
                                arguments.get("fetch_bytes").asInt(),
                        ConsumerConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, TIMEOUT_MS),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer());
        unread.clear();
        List<TopicPartition> places = new ArrayList<>();
        for (JsonNode partition : arguments.get("partitions")) {
            places.add(new TopicPartition(arguments.get("topic").asText(), partition.asInt()));
        }
        consumer.assign(places);
        start(places, arguments.get("start"));
        return null;
    }

    private void start(List<TopicPartition> places, JsonNode start) {
        switch (start.get("at").asText()) {
            case "earliest" -> consumer.seekToBeginning(places);
            case "latest" -> {
                consumer.seekToEnd(places);
                places.forEach(consumer::position);
            }
            case "timestamp" -> {
                Map<TopicPartition, Long> asked = new HashMap<>();
                places.forEach(place -> asked.put(place, start.get("timestamp_ms").asLong()));
                Map<TopicPartition, OffsetAndTimestamp> found = consumer.offsetsForTimes(asked);
                found.forEach((place, at) -> consumer.seek(place, at.offset()));
            }
            default -> places.forEach(place -> consumer.seek(place, start.get("offset").asLong()));
        }
    }

    private Object read(JsonNode arguments) {
        int count = arguments.get("count").asInt();
        long deadline = System.nanoTime() + arguments.get("timeout_ms").asLong() * 1_000_000;
        while (unread.size() < count && System.nanoTime() < deadline) {
            long left = Math.max(deadline - System.nanoTime(), 0);
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofNanos(left));
            polled.forEach(record -> unread.add(consumed(record)));
        }
        List<Map<String, Object>> head = unread.subList(0, Math.min(count, unread.size()));
        List<Map<String, Object>> found = new ArrayList<>(head);
        head.clear();
        return found;
    }

    static Map<String, Object> consumed(ConsumerRecord<byte[], byte[]> record) {
        List<List<Object>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(header.value());
            headers.add(pair);
        }
        Map<String, Object> shown = new HashMap<>();
        shown.put("partition", record.partition());
        shown.put("offset", record.offset());
        shown.put("timestamp_ms", record.timestamp());
        shown.put("key", record.key());
        shown.put("value", record.value());
        shown.put("headers", headers);
        return shown;
    }

    private Object seek(JsonNode arguments) {
        unread.clear();
        consumer.seek(
                new TopicPartition(
                        arguments.get("topic").asText(), arguments.get("partition").asInt()),
                arguments.get("offset").asLong());
        return null;
    }

    private Object closeConsumer(JsonNode arguments) {
        close();
        return null;
    }

    @Override
    public void close() {
        if (consumer != null) {
            consumer.close();
            consumer = null;
        }
    }
}
