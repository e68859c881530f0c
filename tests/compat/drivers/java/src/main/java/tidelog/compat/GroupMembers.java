package tidelog.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The members of groups that are open, by name. */
final class GroupMembers implements AutoCloseable {
    private static final Map<String, Class<?>> ASSIGNORS = Map.of(
            "range", RangeAssignor.class,
            "roundrobin", RoundRobinAssignor.class,
            "sticky", StickyAssignor.class,
            "cooperative-sticky", CooperativeStickyAssignor.class);
    private static final int TIMEOUT_MS = 10_000;
    private final String bootstrapServers;
    private final Map<String, Member> members = new HashMap<>();

    /** A consumer that counts what its rebalances gave and took. */
    private static final class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<List<Object>> revoked = new ArrayList<>();
        int rebalances;

        Member(Map<String, Object> settings) {
            consumer = new KafkaConsumer<>(
                    settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            rebalances++;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            revoked.addAll(pairs(places));
        }
    }

    GroupMembers(String bootstrapServers) {
        this.bootstrapServers = bootstrapServers;
    }

    Map<String, Driver.Operation> operations() {
        return Map.of(
                "member_join", this::join,
                "member_poll", this::poll,
                "member_commit", this::commit,
                "member_committed", this::committed,
                "member_seek", this::seek,
                "member_pause", this::pause,
                "member_resume", this::resume,
                "member_close", this::closeMember);
    }

    static List<List<Object>> pairs(Collection<TopicPartition> places) {
        List<List<Object>> pairs = new ArrayList<>();
        places.forEach(place -> pairs.add(List.of(place.topic(), place.partition())));
        return pairs;
    }

    static TopicPartition place(JsonNode arguments) {
        return new TopicPartition(
                arguments.get("topic").asText(), arguments.get("partition").asInt());
    }

    /** Offsets that travel as triples of topic, partition and offset. */
    static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode triples, String metadata) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode triple : triples) {
            offsets.put(
                    new TopicPartition(triple.get(0).asText(), triple.get(1).asInt()),
                    new OffsetAndMetadata(triple.get(2).asLong(), metadata));
        }
        return offsets;
    }

    ConsumerGroupMetadata groupMetadata(JsonNode arguments) {
        return member(arguments).consumer.groupMetadata();
    }

    private Member member(JsonNode arguments) {
        return members.get(arguments.get("member").asText());
    }

    private Map<String, Object> consumerSettings(JsonNode arguments) {
        JsonNode asked = arguments.get("settings");
        Map<String, Object> settings = new HashMap<>();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers);
        settings.put(ConsumerConfig.CLIENT_ID_CONFIG, arguments.get("member").asText());
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, arguments.get("group").asText());
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, asked.get("reset").asText());
        settings.put(
                ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, asked.get("auto_commit").asBoolean());
        settings.put(ConsumerConfig.AUTO_COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 100);
        settings.put(ConsumerConfig.METADATA_MAX_AGE_CONFIG,
                asked.get("metadata_max_age_ms").asInt());
        settings.put(ConsumerConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, TIMEOUT_MS);
        if (!asked.get("instance_id").isNull()) {
            settings.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG,
                    asked.get("instance_id").asText());
        }
        if (asked.get("protocol").asText().equals("consumer")) {
            settings.put("group.protocol", "consumer");
            return settings;
        }
        settings.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG,
                asked.get("session_timeout_ms").asInt());
        settings.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG,
                asked.get("heartbeat_interval_ms").asInt());
        settings.put(ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG,
                List.of(ASSIGNORS.get(asked.get("assignor").asText("range"))));
        return settings;
    }

    private Object join(JsonNode arguments) {
        Member joined = new Member(consumerSettings(arguments));
        members.put(arguments.get("member").asText(), joined);
        if (!arguments.get("pattern").isNull()) {
            joined.consumer.subscribe(
                    Pattern.compile(arguments.get("pattern").asText()), joined);
            return null;
        }
        List<String> topics = new ArrayList<>();
        arguments.get("topics").forEach(topic -> topics.add(topic.asText()));
        joined.consumer.subscribe(topics, joined);
        return null;
    }

    private Object poll(JsonNode arguments) {
        Member polled = member(arguments);
        int count = arguments.get("count").asInt();
        long deadline = System.nanoTime() + arguments.get("timeout_ms").asLong() * 1_000_000;
        List<Map<String, Object>> records = new ArrayList<>();
        do {
            long left = Math.max(deadline - System.nanoTime(), 0);
            for (ConsumerRecord<byte[], byte[]> record : polled.consumer.poll(
                    Duration.ofNanos(left))) {
                Map<String, Object> shown = RecordOperations.consumed(record);
                shown.put("topic", record.topic());
                records.add(shown);
            }
        } while (records.size() < count && System.nanoTime() < deadline);
        return Map.of(
                "records", records,
                "assignment", pairs(polled.consumer.assignment()),
                "rebalances", polled.rebalances,
                "revoked", polled.revoked);
    }

    private Object commit(JsonNode arguments) {
        KafkaConsumer<byte[], byte[]> consumer = member(arguments).consumer;
        Map<TopicPartition, OffsetAndMetadata> offsets =
                offsets(arguments.get("offsets"), arguments.get("metadata").asText());
        if (arguments.get("asynchronous").asBoolean()) {
            consumer.commitAsync(offsets, null);
        } else {
            consumer.commitSync(offsets);
        }
        return null;
    }

    private Object committed(JsonNode arguments) {
        TopicPartition place = place(arguments);
        OffsetAndMetadata found = member(arguments).consumer.committed(Set.of(place)).get(place);
        return found == null
                ? null : Map.of("offset", found.offset(), "metadata", found.metadata());
    }

    private Object seek(JsonNode arguments) {
        member(arguments).consumer.seek(place(arguments), arguments.get("offset").asLong());
        return null;
    }

    private Object pause(JsonNode arguments) {
        member(arguments).consumer.pause(Set.of(place(arguments)));
        return null;
    }

    private Object resume(JsonNode arguments) {
        member(arguments).consumer.resume(Set.of(place(arguments)));
        return null;
    }

    private Object closeMember(JsonNode arguments) {
        Member closed = members.remove(arguments.get("member").asText());
        if (closed != null) {
            closed.consumer.close();
        }
        return null;
    }

    @Override
    public void close() {
        members.values().forEach(member -> member.consumer.close());
    }
}
