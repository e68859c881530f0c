import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Commits transactions of so many records, one after another, to one partition.
 *
 * Usage: Transactions BOOTSTRAP_SERVERS TOPIC TRANSACTIONS RECORDS RECORD_BYTES. Prints of the last
 * three quarters how many there were, the seconds that they took, and p50 and p99 of
 * commitTransaction in milliseconds: before, the client's own code is being compiled.
 */
class Transactions {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", "bench-" + ProcessHandle.current().pid());
        settings.put("batch.size", "65536");
        String serializer = ByteArraySerializer.class.getName();
        settings.put("key.serializer", serializer);
        settings.put("value.serializer", serializer);
        String topic = arguments[1];
        int transactions = Integer.parseInt(arguments[2]), records = Integer.parseInt(arguments[3]);
        byte[] value = new byte[Integer.parseInt(arguments[4])];
        int warmUp = transactions / 4;
        double[] took = new double[transactions - warmUp];
        long start = 0;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            for (int number = 0; number < transactions; number++) {
                if (number == warmUp) {
                    start = System.nanoTime();
                }
                producer.beginTransaction();
                for (int record = 0; record < records; record++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, value));
                }
                producer.flush();
                long began = System.nanoTime();
                producer.commitTransaction();
                if (number >= warmUp) {
                    took[number - warmUp] = (System.nanoTime() - began) / 1e6;
                }
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            Arrays.sort(took);
            double p50 = took[took.length / 2], p99 = took[took.length * 99 / 100];
            System.out.println(took.length + " " + seconds + " " + p50 + " " + p99);
        }
    }
}
