package tidelog.compat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Driver for the Java client. The protocol is told in drivers/python/loop.py: a JSON request a line
 * on standard input, a JSON answer a line on standard output.
 */
public final class Driver {
    static final ObjectMapper JSON = new ObjectMapper();

    interface Operation {
        Object apply(JsonNode arguments) throws Exception;
    }

    public static void main(String[] commandLine) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        ObjectNode greeting = JSON.createObjectNode();
        greeting.put("client", "java").put("version", AppInfoParser.getVersion());
        answers.println(greeting);
        try (AdminOperations admin = new AdminOperations(commandLine[0]);
                RecordOperations records = new RecordOperations(commandLine[0]);
                GroupMembers members = new GroupMembers(commandLine[0]);
                Transactions transactions = new Transactions(commandLine[0], members)) {
            Map<String, Operation> operations = admin.operations();
            operations.putAll(records.operations());
            operations.putAll(members.operations());
            operations.putAll(transactions.operations());
            operations.putAll(Secured.operations());
            InputStreamReader input = new InputStreamReader(System.in, StandardCharsets.UTF_8);
            BufferedReader lines = new BufferedReader(input);
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                answers.println(carryOut(operations, JSON.readTree(line)));
            }
        }
    }

    private static ObjectNode carryOut(Map<String, Operation> operations, JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            Operation operation = operations.get(request.get("operation").asText());
            if (operation == null) {
                throw new IllegalArgumentException("no operation " + request.get("operation"));
            }
            Object result = operation.apply(request.get("arguments"));
            answer.set("result", JSON.valueToTree(result));
        } catch (Exception failure) {
            answer.set("error", describe(failure));
        }
        return answer;
    }

    /** What the client reported, in the terms of the protocol. */
    static ObjectNode describe(Throwable failure) {
        Throwable cause = failure;
        while (isWrapped(cause)) {
            cause = cause.getCause();
        }
        ObjectNode described = JSON.createObjectNode();
        described.putNull("code").putNull("kind").put("message", cause.toString());
        if (cause instanceof Secured.Refusal) {
            described.put("kind", cause.getCause().getClass().getSimpleName());
        } else if (cause instanceof TimeoutException) {
            described.put("kind", kindOfTimeout(cause));
        } else if (cause instanceof NoOffsetForPartitionException) {
            described.put("kind", "no_offset");
        } else if (cause instanceof CommitFailedException) {
            described.put("kind", "fenced");
        } else if (cause instanceof InvalidOffsetException) {
            described.put("code", Errors.OFFSET_OUT_OF_RANGE.code());
        } else if (cause instanceof ApiException
                && Errors.forException(cause) != Errors.UNKNOWN_SERVER_ERROR) {
            described.put("code", Errors.forException(cause).code());
        } else {
            described.put("kind", "client");
        }
        return described;
    }

    /** Whether there is a cause that says more: a transaction repeats what ended it. */
    private static boolean isWrapped(Throwable failure) {
        Throwable cause = failure.getCause();
        return failure instanceof ExecutionException && cause != null
                || failure.getClass() == KafkaException.class
                        && (cause instanceof ApiException || cause instanceof KafkaException);
    }

    private static String kindOfTimeout(Throwable timeout) {
        String message = String.valueOf(timeout.getMessage());
        if (message.matches("Partition .* not present in metadata.*")) {
            return "unknown_partition";
        }
        return message.matches("Topic .* not present in metadata.*") ? "unknown_topic" : "timeout";
    }

    private Driver() {}
}
