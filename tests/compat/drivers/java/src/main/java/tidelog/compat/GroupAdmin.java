package tidelog.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Groups as the admin client sees and changes them. */
final class GroupAdmin {
    private final Admin admin;

    GroupAdmin(Admin admin) {
        this.admin = admin;
    }

    Map<String, Driver.Operation> operations() {
        return Map.of(
                "list_groups", this::list,
                "describe_group", this::describe,
                "list_group_offsets", this::listOffsets,
                "alter_group_offsets", this::alterOffsets,
                "delete_group", this::delete,
                "delete_group_offsets", this::deleteOffsets);
    }

    private static String group(JsonNode arguments) {
        return arguments.get("group").asText();
    }

    private Object list(JsonNode arguments) throws Exception {
        List<Map<String, Object>> groups = new ArrayList<>();
        for (ConsumerGroupListing listed : admin.listConsumerGroups().all().get()) {
            groups.add(Map.of(
                    "group", listed.groupId(), "state", listed.state().orElseThrow().toString()));
        }
        return groups;
    }

    private Object describe(JsonNode arguments) throws Exception {
        String group = group(arguments);
        ConsumerGroupDescription described =
                admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        List<Map<String, Object>> members = new ArrayList<>();
        for (MemberDescription member : described.members()) {
            Map<String, Object> shown = new HashMap<>();
            shown.put("client_id", member.clientId());
            shown.put("instance_id", member.groupInstanceId().orElse(null));
            shown.put("assignment", GroupMembers.pairs(member.assignment().topicPartitions()));
            members.add(shown);
        }
        return Map.of(
                "state", described.state().toString(),
                "assignor", described.partitionAssignor(),
                "members", members);
    }

    private Object listOffsets(JsonNode arguments) throws Exception {
        Map<String, ListConsumerGroupOffsetsSpec> asked = new HashMap<>();
        arguments.get("groups").forEach(
                group -> asked.put(group.asText(), new ListConsumerGroupOffsetsSpec()));
        Map<String, Object> found = new HashMap<>();
        admin.listConsumerGroupOffsets(asked).all().get()
                .forEach((group, offsets) -> found.put(group, triples(offsets)));
        return found;
    }

    private static List<List<Object>> triples(Map<TopicPartition, OffsetAndMetadata> offsets) {
        List<List<Object>> triples = new ArrayList<>();
        offsets.forEach((place, at) -> triples.add(
                List.of(place.topic(), place.partition(), at.offset())));
        return triples;
    }

    private Object alterOffsets(JsonNode arguments) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets =
                GroupMembers.offsets(arguments.get("offsets"), "");
        return admin.alterConsumerGroupOffsets(group(arguments), offsets).all().get();
    }

    private Object delete(JsonNode arguments) throws Exception {
        return admin.deleteConsumerGroups(List.of(group(arguments))).all().get();
    }

    private Object deleteOffsets(JsonNode arguments) throws Exception {
        Set<TopicPartition> places = Set.of(GroupMembers.place(arguments));
        return admin.deleteConsumerGroupOffsets(group(arguments), places).all().get();
    }
}
