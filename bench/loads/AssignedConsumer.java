import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic from its beginning with partitions assigned by hand, so that no group is needed.
 *
 * Usage: AssignedConsumer BOOTSTRAP_SERVERS TOPIC PARTITIONS RECORDS. Prints how many records there
 * were, and how many per second in the last three quarters: before, the client's own code is being
 * compiled.
 */
class AssignedConsumer {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("enable.auto.commit", "false");
        String deserializer = ByteArrayDeserializer.class.getName();
        settings.put("key.deserializer", deserializer);
        settings.put("value.deserializer", deserializer);
        List<TopicPartition> partitions = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
            partitions.add(new TopicPartition(arguments[1], number));
        }
        long wanted = Long.parseLong(arguments[3]);
        long records = 0, before = 0, start = System.nanoTime();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (records < wanted) {
                ConsumerRecords<byte[], byte[]> some = consumer.poll(Duration.ofSeconds(30));
                if (some.isEmpty()) {
                    throw new IllegalStateException("nothing for 30 s after " + records);
                }
                // Looking at each record is what makes the client decode it.
                for (var record : some) {
                    records += record.offset() >= 0 ? 1 : 0;
                }
                if (before == 0 && records >= wanted / 4) {
                    before = records;
                    start = System.nanoTime();
                }
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.println(records + " " + (records - before) / seconds);
        }
    }
}
