import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** One member that reads and commits, and tells everything it does: see tests/operated/members.py. */
public final class Member implements ConsumerRebalanceListener {
    private static final BlockingQueue<String> COMMANDS = new LinkedBlockingQueue<>();
    /** As many partitions as a topic may have here. In assign mode all may be committed. */
    private static final int ANY = 100;

    private final String bootstrap;
    private final String group;
    private final String topic;
    private final String commits;
    private final KafkaConsumer<byte[], byte[]> consumer;
    /** What was read, by partition: the next offset. */
    private final Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
    private final Set<TopicPartition> owned = new HashSet<>();
    private String lastError = "";

    private Member(Map<String, String> args) {
        bootstrap = args.get("bootstrap");
        group = args.get("group");
        topic = args.get("topic");
        commits = args.get("commits");
        Properties p = new Properties();
        p.put("bootstrap.servers", args.get("bootstrap"));
        p.put("group.id", args.get("group"));
        p.put("client.id", args.get("client"));
        p.put("key.deserializer", ByteArrayDeserializer.class.getName());
        p.put("value.deserializer", ByteArrayDeserializer.class.getName());
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", String.valueOf(commits.equals("auto")));
        p.put("auto.commit.interval.ms", "200");
        p.put("fetch.max.wait.ms", "100");
        p.put("max.poll.interval.ms", args.get("rebalance_ms"));
        p.put("default.api.timeout.ms", "8000");
        p.put("request.timeout.ms", "8000");
        if (args.containsKey("instance")) p.put("group.instance.id", args.get("instance"));
        if (args.get("protocol").equals("consumer")) {
            p.put("group.protocol", "consumer");
        } else {
            boolean cooperative = args.get("protocol").equals("cooperative");
            p.put("partition.assignment.strategy", (cooperative ? CooperativeStickyAssignor.class : RangeAssignor.class).getName());
            p.put("session.timeout.ms", args.get("session_ms"));
            p.put("heartbeat.interval.ms", "500");
        }
        consumer = new KafkaConsumer<>(p);
        if (args.containsKey("parts")) {
            List<TopicPartition> parts = new ArrayList<>();
            for (String index : args.get("parts").split(",")) parts.add(new TopicPartition(topic, Integer.parseInt(index)));
            consumer.assign(parts);
            for (int index = 0; index < ANY; index++) owned.add(new TopicPartition(topic, index));
        } else {
            consumer.subscribe(List.of(topic), this);
        }
    }

    private static synchronized void tell(String event, String rest) {
        Instant now = Instant.now();
        long micros = now.getEpochSecond() * 1_000_000L + now.getNano() / 1000;
        System.out.println("{\"ev\":\"" + event + "\",\"t\":" + micros + rest + "}");
        System.out.flush();
    }

    private static String text(Object value) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : String.valueOf(value).toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else out.append(c < ' ' ? ' ' : c);
        }
        return out.append('"').toString();
    }

    private static String indexes(Collection<TopicPartition> partitions) {
        return partitions.stream().map(p -> String.valueOf(p.partition())).collect(Collectors.joining(",", ",\"p\":[", "]"));
    }

    /** Kafka's name of the error. */
    private static String code(Throwable e) {
        for (Throwable x = e; x != null; x = x.getCause()) {
            Errors known = Errors.forException(x);
            if (known != Errors.UNKNOWN_SERVER_ERROR) return known.name();
        }
        return e.getClass().getSimpleName();
    }

    private static String outcome(Throwable e) {
        return e == null ? ",\"ok\":true" : ",\"ok\":false,\"err\":" + text(code(e)) + ",\"msg\":" + text(e);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        owned.addAll(partitions);
        tell("assigned", indexes(partitions) + ",\"member\":" + text(consumer.groupMetadata().memberId()));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (commits.equals("revoke")) {
            Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>(positions);
            done.keySet().retainAll(partitions);
            if (!done.isEmpty()) commit(done);
        }
        positions.keySet().removeAll(partitions);
        owned.removeAll(partitions);
        tell("revoked", indexes(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        positions.keySet().removeAll(partitions);
        owned.removeAll(partitions);
        tell("lost", indexes(partitions));
    }

    private void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        try {
            consumer.commitSync(offsets);
            tell("commit", outcome(null));
        } catch (RuntimeException e) {
            tell("commit", outcome(e));
        }
    }

    private void read() {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(50));
        if (records.isEmpty()) return;
        Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
        StringBuilder rows = new StringBuilder();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            rows.append(rows.length() == 0 ? "[" : ",[").append(record.partition()).append(',').append(record.offset())
                .append(',').append(text(new String(record.value(), StandardCharsets.UTF_8))).append(']');
            done.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        tell("read", ",\"m\":[" + rows + "]");
        positions.putAll(done);
        if (commits.equals("sync")) {
            commit(done);
        } else if (commits.equals("revoke")) {
            consumer.commitAsync(done, (offsets, e) -> tell("commit", outcome(e)));
        }
    }

    /** Returns whether to go on. */
    private boolean obey(String line) throws InterruptedException {
        String[] words = line.split(" ");
        switch (words[0]) {
            case "close" -> {
                consumer.close(CloseOptions.timeout(Duration.ofSeconds(10)));
                tell("done", outcome(null));
                return false;
            }
            case "hold" -> {
                tell("holds", "");
                Thread.sleep(Long.parseLong(words[1]));
                tell("done", outcome(null));
            }
            case "commit", "insist" -> {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (int i = 1; i < words.length; i += 2) {
                    offsets.put(new TopicPartition(topic, Integer.parseInt(words[i])), new OffsetAndMetadata(Long.parseLong(words[i + 1])));
                }
                if (words[0].equals("commit") && !owned.containsAll(offsets.keySet())) {
                    tell("done", ",\"ok\":false,\"err\":\"LOST\"");
                    return true;
                }
                try {
                    consumer.commitSync(offsets);
                    tell("done", outcome(null));
                } catch (RuntimeException e) {
                    tell("done", outcome(e));
                }
            }
            case "config" -> {
                try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                    ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
                    AlterConfigOp set = new AlterConfigOp(new ConfigEntry(words[1], words[2]), AlterConfigOp.OpType.SET);
                    admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
                    String value = admin.describeConfigs(List.of(resource)).all().get().get(resource).get(words[1]).value();
                    tell("done", outcome(null) + ",\"value\":" + text(value));
                } catch (ExecutionException e) {
                    tell("done", outcome(e));
                }
            }
            default -> throw new IllegalArgumentException(line);
        }
        return true;
    }

    private void run() throws InterruptedException {
        while (true) {
            String line = COMMANDS.poll();
            if (line != null && !obey(line)) return;
            try {
                read();
                lastError = "";
            } catch (RuntimeException e) {
                if (!lastError.equals(code(e))) tell("error", ",\"err\":" + text(code(e)) + ",\"msg\":" + text(e));
                lastError = code(e);
                Thread.sleep(100);
            }
        }
    }

    public static void main(String[] words) throws Exception {
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8));
        Map<String, String> args = new HashMap<>();
        for (String word : words) args.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
        Thread reader = new Thread(() -> {
            try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
                for (String line; (line = in.readLine()) != null; ) COMMANDS.add(line);
            } catch (java.io.IOException e) {
                tell("error", ",\"err\":\"STDIN\",\"msg\":" + text(e));
            }
            // Whoever started it is gone.
            Runtime.getRuntime().halt(1);
        });
        reader.setDaemon(true);
        reader.start();
        new Member(args).run();
        Runtime.getRuntime().halt(0);
    }
}
