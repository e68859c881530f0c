package tidelog.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Secured listeners: what a connection holds and what an error's kind is, is told in
 * drivers/python/secured.py.
 */
final class Secured {
    private static final int TIMEOUT_MS = 10_000;
    private static final long READ_TIMEOUT_NS = 30_000_000_000L;
    private static final String MODULES = "org.apache.kafka.common.security.";

    /** A refusal under the name of the client's exception. */
    static final class Refusal extends Exception {
        private static final long serialVersionUID = 1L;

        Refusal(Throwable cause) {
            super(cause);
        }
    }

    static Map<String, Driver.Operation> operations() {
        return Map.of("secured_produce", Secured::produce, "secured_consume", Secured::consume);
    }

    private static Map<String, Object> settings(JsonNode connection) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", connection.get("servers").asText());
        settings.put("security.protocol", connection.get("protocol").asText());
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", connection.get("ca").asText());
        if (!connection.get("certificate").isNull()) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", connection.get("certificate").asText());
        }
        if (!connection.get("mechanism").isNull()) {
            settings.put("sasl.mechanism", connection.get("mechanism").asText());
            settings.put("sasl.jaas.config", login(connection));
        }
        if (!connection.get("token").isNull()) {
            settings.put("sasl.login.callback.handler.class", TokenLogin.class);
        }
        return settings;
    }

    private static String login(JsonNode connection) {
        if (!connection.get("token").isNull()) {
            return MODULES + "oauthbearer.OAuthBearerLoginModule required token=\""
                    + connection.get("token").asText() + "\";";
        }
        boolean isPlain = connection.get("mechanism").asText().equals("PLAIN");
        return MODULES + (isPlain ? "plain.PlainLoginModule" : "scram.ScramLoginModule")
                + " required username=\"" + connection.get("username").asText()
                + "\" password=\"" + connection.get("password").asText() + "\";";
    }

    private static Object produce(JsonNode arguments) throws Refusal {
        Map<String, Object> settings = settings(arguments.get("connection"));
        settings.put("max.block.ms", TIMEOUT_MS);
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        try {
            String topic = arguments.get("topic").asText();
            producer.send(new ProducerRecord<>(topic, arguments.get("value").asText()))
                    .get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            return null;
        } catch (ExecutionException failure) {
            throw new Refusal(failure.getCause());
        } catch (Exception failure) {
            throw new Refusal(failure);
        } finally {
            producer.close(Duration.ZERO);
        }
    }

    private static Object consume(JsonNode arguments) throws Refusal {
        Map<String, Object> settings = settings(arguments.get("connection"));
        settings.put("group.id", arguments.get("group").asText());
        settings.put("auto.offset.reset", "earliest");
        KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        try {
            consumer.subscribe(List.of(arguments.get("topic").asText()));
            long deadline = System.nanoTime() + READ_TIMEOUT_NS;
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> found : consumer.poll(Duration.ofMillis(100))) {
                    return found.value();
                }
            }
            throw new IllegalStateException("nothing was read");
        } catch (Exception failure) {
            throw new Refusal(failure);
        } finally {
            consumer.close();
        }
    }

    private Secured() {}
}
