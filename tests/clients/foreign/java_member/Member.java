import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/** A consumer that obeys lines of its input; they stand in tests/clients/endings/member.py. */
public class Member {
    static final String BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
    static final LinkedBlockingQueue<String> lines = new LinkedBlockingQueue<>();
    static volatile boolean closing = false;
    static boolean closed = false;

    public static void main(String[] arguments) throws Exception {
        Map<String, String> with = new HashMap<>();
        for (String each : arguments) {
            String[] parts = each.split("=", 2);
            with.put(parts[0], parts[1]);
        }
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties(with));
        CountDownLatch ended = new CountDownLatch(1);
        if (with.get("handles_sigterm").equals("true")) {
            // As Kafka's own documentation has it: wake the poll up, and wait until the consumer is closed.
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                closing = true;
                consumer.wakeup();
                try {
                    ended.await();
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                }
            }));
        }
        Thread reader = new Thread(Member::read);
        reader.setDaemon(true);
        reader.start();
        consumer.subscribe(List.of(with.get("topic")));
        boolean subscribed = true;
        try {
            while (!closing) {
                if (subscribed && !closed) { // without a subscription, poll throws
                    consumer.poll(Duration.ofMillis(50));
                }
                String line = closed || !subscribed ? lines.take() : lines.poll();
                if (line != null) {
                    subscribed = obey(consumer, with, line, subscribed);
                }
            }
        } catch (WakeupException woken) {
            // it is to close
        }
        if (!closed) {
            consumer.close();
        }
        ended.countDown();
    }

    static Properties properties(Map<String, String> with) {
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", with.get("bootstrap"));
        properties.setProperty("group.id", with.get("group_id"));
        properties.setProperty("client.id", with.get("client_id"));
        if (!with.get("instance_id").isEmpty()) {
            properties.setProperty("group.instance.id", with.get("instance_id"));
        }
        properties.setProperty("session.timeout.ms", with.get("session_ms"));
        properties.setProperty("heartbeat.interval.ms", with.get("heartbeat_ms"));
        properties.setProperty("max.poll.interval.ms", with.get("poll_interval_ms"));
        properties.setProperty("enable.auto.commit", "false");
        properties.setProperty("auto.offset.reset", "earliest");
        properties.setProperty("key.deserializer", BYTES);
        properties.setProperty("value.deserializer", BYTES);
        return properties;
    }

    static boolean obey(KafkaConsumer<byte[], byte[]> consumer, Map<String, String> with, String line, boolean subscribed)
            throws Exception {
        String[] words = line.split(" ");
        switch (words[0]) {
            case "commit":
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (TopicPartition each : consumer.assignment()) {
                    offsets.put(each, new OffsetAndMetadata(1));
                }
                consumer.commitSync(offsets);
                break;
            case "stall":
                Thread.sleep((long) (Double.parseDouble(words[1]) * 1000));
                break;
            case "unsubscribe":
                consumer.unsubscribe();
                return false;
            case "subscribe":
                consumer.subscribe(List.of(with.get("topic")));
                return true;
            case "close":
                close(consumer, words.length > 1 ? words[1] : null);
                closed = true;
                break;
            case "raise":
                throw new IllegalStateException("nobody catches this");
            default:
                throw new IllegalArgumentException(line);
        }
        return subscribed;
    }

    /** With an operation as CloseOptions of 4.1 and later has it; by reflection, as older ones lack it. */
    static void close(KafkaConsumer<byte[], byte[]> consumer, String operation) throws Exception {
        if (operation == null) {
            consumer.close();
            return;
        }
        Class<?> options = Class.forName("org.apache.kafka.clients.consumer.CloseOptions");
        for (Class<?> operations : options.getDeclaredClasses()) {
            if (operations.isEnum()) {
                Object chosen = operations.getMethod("valueOf", String.class).invoke(null, operation);
                Object given = options.getMethod("groupMembershipOperation", operations).invoke(null, chosen);
                KafkaConsumer.class.getMethod("close", options).invoke(consumer, given);
            }
        }
    }

    static void read() {
        try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                lines.add(line);
            }
        } catch (java.io.IOException broken) {
            // the end, too
        }
        Runtime.getRuntime().halt(3);
    }
}
