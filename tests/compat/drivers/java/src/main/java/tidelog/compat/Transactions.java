package tidelog.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The producers with a transactional id that are open, by name. */
final class Transactions implements AutoCloseable {
    private static final int TIMEOUT_MS = 20_000;
    private final String bootstrapServers;
    private final GroupMembers members;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    Transactions(String bootstrapServers, GroupMembers members) {
        this.bootstrapServers = bootstrapServers;
        this.members = members;
    }

    Map<String, Driver.Operation> operations() {
        return Map.of(
                "transaction_open", this::open,
                "transaction_begin", this::begin,
                "transaction_send", this::send,
                "transaction_offsets", this::addOffsets,
                "transaction_end", this::end,
                "transaction_close", this::closeProducer);
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode arguments) {
        return producers.get(arguments.get("producer").asText());
    }

    private Object open(JsonNode arguments) {
        Map<String, Object> settings = Map.of(
                ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers,
                ProducerConfig.TRANSACTIONAL_ID_CONFIG, arguments.get("transactional_id").asText(),
                ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, arguments.get("timeout_ms").asInt(),
                ProducerConfig.MAX_BLOCK_MS_CONFIG, TIMEOUT_MS);
        KafkaProducer<byte[], byte[]> made =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(arguments.get("producer").asText(), made);
        made.initTransactions();
        return null;
    }

    private Object begin(JsonNode arguments) {
        producer(arguments).beginTransaction();
        return null;
    }

    private Object send(JsonNode arguments) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : arguments.get("records")) {
            String topic = arguments.get("topic").asText();
            sent.add(RecordOperations.send(producer(arguments), topic, record));
        }
        List<Object> results = new ArrayList<>();
        sent.forEach(future -> results.add(RecordOperations.outcome(future)));
        return results;
    }

    private Object addOffsets(JsonNode arguments) {
        producer(arguments).sendOffsetsToTransaction(
                GroupMembers.offsets(arguments.get("offsets"), ""),
                members.groupMetadata(arguments));
        return null;
    }

    private Object end(JsonNode arguments) {
        if (arguments.get("committed").asBoolean()) {
            producer(arguments).commitTransaction();
        } else {
            producer(arguments).abortTransaction();
        }
        return null;
    }

    private Object closeProducer(JsonNode arguments) {
        producers.remove(arguments.get("producer").asText()).close(Duration.ZERO);
        return null;
    }

    @Override
    public void close() {
        producers.values().forEach(producer -> producer.close(Duration.ZERO));
    }
}
