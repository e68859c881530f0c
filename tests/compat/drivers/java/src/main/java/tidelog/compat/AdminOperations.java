package tidelog.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsResult;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

/** Everything that goes through the admin client. */
final class AdminOperations implements AutoCloseable {
    private static final int TIMEOUT_MS = 5_000;
    private final Admin admin;

    AdminOperations(String bootstrapServers) {
        admin = Admin.create(Map.of(
                AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers,
                AdminClientConfig.REQUEST_TIMEOUT_MS_CONFIG, TIMEOUT_MS,
                AdminClientConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, TIMEOUT_MS));
    }

    Map<String, Driver.Operation> operations() {
        Map<String, Driver.Operation> operations = new HashMap<>();
        operations.put("create_topic", this::createTopic);
        operations.put("delete_topic", this::deleteTopic);
        operations.put("list_topics", arguments -> admin.listTopics().names().get());
        operations.put("describe_topic", this::describeTopic);
        operations.put("describe_cluster", this::describeCluster);
        operations.put("create_partitions", this::createPartitions);
        operations.put("delete_records", this::deleteRecords);
        operations.put("describe_configs", this::describeConfigs);
        operations.put("alter_configs", this::alterConfigs);
        operations.put("incremental_alter_configs", this::incrementalAlterConfigs);
        operations.put("list_offsets", this::listOffsets);
        operations.putAll(new GroupAdmin(admin).operations());
        return operations;
    }

    private static String topic(JsonNode arguments) {
        return arguments.get("topic").asText();
    }

    private static TopicPartition place(JsonNode arguments) {
        return new TopicPartition(topic(arguments), arguments.get("partition").asInt());
    }

    private static Map<String, String> strings(JsonNode object) {
        Map<String, String> strings = new LinkedHashMap<>();
        object.fields().forEachRemaining(e -> strings.put(e.getKey(), e.getValue().asText()));
        return strings;
    }

    private Object createTopic(JsonNode arguments) throws Exception {
        int partitions = arguments.get("partitions").asInt();
        short replicationFactor = (short) arguments.get("replication_factor").asInt();
        NewTopic wanted = new NewTopic(
                topic(arguments), Optional.of(partitions), Optional.of(replicationFactor));
        wanted.configs(strings(arguments.get("configs")));
        var created = admin.createTopics(List.of(wanted));
        created.all().get();
        // The answer carries the topic's settings too: the client must be able to read them.
        created.config(wanted.name()).get();
        return null;
    }

    private Object deleteTopic(JsonNode arguments) throws Exception {
        return admin.deleteTopics(List.of(topic(arguments))).all().get();
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }

    private Object describeTopic(JsonNode arguments) throws Exception {
        TopicDescription described = admin.describeTopics(List.of(topic(arguments)))
                .allTopicNames().get().get(topic(arguments));
        List<Map<String, Object>> partitions = new ArrayList<>();
        for (TopicPartitionInfo partition : described.partitions()) {
            partitions.add(Map.of(
                    "partition", partition.partition(),
                    "leader", partition.leader() == null ? -1 : partition.leader().id(),
                    "replicas", ids(partition.replicas()),
                    "isr", ids(partition.isr())));
        }
        return partitions;
    }

    private Object describeCluster(JsonNode arguments) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        List<List<Object>> brokers = new ArrayList<>();
        for (Node node : cluster.nodes().get()) {
            brokers.add(List.of(node.id(), node.host(), node.port()));
        }
        return Map.of(
                "cluster_id", cluster.clusterId().get(),
                "controller_id", cluster.controller().get().id(),
                "brokers", brokers);
    }

    private Object createPartitions(JsonNode arguments) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(arguments.get("total").asInt());
        return admin.createPartitions(Map.of(topic(arguments), total)).all().get();
    }

    private Object deleteRecords(JsonNode arguments) throws Exception {
        TopicPartition place = place(arguments);
        RecordsToDelete before = RecordsToDelete.beforeOffset(arguments.get("offset").asLong());
        return admin.deleteRecords(Map.of(place, before))
                .lowWatermarks().get(place).get().lowWatermark();
    }

    private static ConfigResource topicResource(JsonNode arguments) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic(arguments));
    }

    private Object describeConfigs(JsonNode arguments) throws Exception {
        ConfigResource.Type type = arguments.get("kind").asText().equals("broker")
                ? ConfigResource.Type.BROKER : ConfigResource.Type.TOPIC;
        ConfigResource resource = new ConfigResource(type, arguments.get("name").asText());
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        Map<String, Object> described = new HashMap<>();
        for (ConfigEntry entry : config.entries()) {
            Map<String, Object> setting = new HashMap<>();
            setting.put("value", entry.value());
            setting.put("default", entry.source() == ConfigEntry.ConfigSource.DEFAULT_CONFIG);
            described.put(entry.name(), setting);
        }
        return described;
    }

    /** Gone from the client since 4.0, so it is looked up by name. */
    private Object alterConfigs(JsonNode arguments) throws Exception {
        List<ConfigEntry> entries = new ArrayList<>();
        strings(arguments.get("configs"))
                .forEach((name, value) -> entries.add(new ConfigEntry(name, value)));
        AlterConfigsResult altered = (AlterConfigsResult) Admin.class
                .getMethod("alterConfigs", Map.class)
                .invoke(admin, Map.of(topicResource(arguments), new Config(entries)));
        return altered.all().get();
    }

    private Object incrementalAlterConfigs(JsonNode arguments) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        strings(arguments.get("set_configs")).forEach((name, value) -> changes.add(
                new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        for (JsonNode name : arguments.get("delete_configs")) {
            ConfigEntry entry = new ConfigEntry(name.asText(), null);
            changes.add(new AlterConfigOp(entry, AlterConfigOp.OpType.DELETE));
        }
        return admin.incrementalAlterConfigs(Map.of(topicResource(arguments), changes)).all().get();
    }

    private static OffsetSpec offsetSpec(JsonNode at) {
        if (at.isNumber()) {
            return OffsetSpec.forTimestamp(at.asLong());
        }
        return switch (at.asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            default -> OffsetSpec.maxTimestamp();
        };
    }

    private Object listOffsets(JsonNode arguments) throws Exception {
        TopicPartition place = place(arguments);
        ListOffsetsResultInfo found = admin
                .listOffsets(Map.of(place, offsetSpec(arguments.get("at")))).all().get().get(place);
        return Map.of("offset", found.offset(), "timestamp_ms", found.timestamp());
    }

    @Override
    public void close() {
        admin.close();
    }
}
