import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of the consumer protocol join one after another at each server; when the last change is past, their own
 * `heartbeat-total` is read twice, a minute apart.
 */
public class StableMinute {
    static final int MEMBERS = 10;
    static final AtomicLong lastChange = new AtomicLong(System.nanoTime());
    static volatile boolean stop;

    static class Member extends Thread {
        final Properties properties;
        final String topic;
        final AtomicInteger owned;
        volatile double heartbeats;

        Member(String bootstrap, String topic, AtomicInteger owned) {
            this.topic = topic;
            this.owned = owned;
            properties = new Properties();
            properties.put("bootstrap.servers", bootstrap);
            properties.put("group.id", topic);
            properties.put("group.protocol", "consumer");
            properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
            properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        }

        @Override
        public void run() {
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
                consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                    @Override
                    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                        owned.addAndGet(-partitions.size());
                        lastChange.set(System.nanoTime());
                    }

                    @Override
                    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                        owned.addAndGet(partitions.size());
                        lastChange.set(System.nanoTime());
                    }
                });
                while (!stop) {
                    consumer.poll(Duration.ofMillis(100));
                    heartbeats = consumer.metrics().entrySet().stream()
                        .filter(metric -> metric.getKey().name().equals("heartbeat-total"))
                        .mapToDouble(metric -> ((Number) metric.getValue().metricValue()).doubleValue())
                        .sum();
                }
            }
        }
    }

    static double total(List<Member> members) {
        return members.stream().mapToDouble(member -> member.heartbeats).sum();
    }

    public static void main(String[] servers) throws Exception {
        List<List<Member>> all = new ArrayList<>();
        for (String server : servers) {
            String topic = "stable-minute-" + System.nanoTime();
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", server))) {
                admin.createTopics(List.of(new NewTopic(topic, MEMBERS * 2, (short) 1))).all().get();
            }
            AtomicInteger owned = new AtomicInteger();
            List<Member> members = Stream.generate(() -> new Member(server, topic, owned)).limit(MEMBERS).toList();
            members.forEach(Thread::start);
            all.add(members);
        }
        boolean complete = false;
        while (!complete || System.nanoTime() - lastChange.get() < Duration.ofSeconds(30).toNanos()) {
            Thread.sleep(100);
            complete = all.stream().allMatch(members -> members.get(0).owned.get() == MEMBERS * 2);
        }
        List<Double> before = all.stream().map(StableMinute::total).toList();
        Thread.sleep(Duration.ofSeconds(60).toMillis());
        List<Double> minute = new ArrayList<>();
        for (int i = 0; i < servers.length; i++) {
            minute.add((total(all.get(i)) - before.get(i)) / MEMBERS);
            System.out.printf("%s: %.2f heartbeats a member and minute%n", servers[i], minute.get(i));
        }
        stop = true;
        for (List<Member> members : all) {
            for (Member member : members) {
                member.join();
            }
        }
        double ratio = minute.get(0) / minute.get(minute.size() - 1);
        boolean same = ratio >= 0.95 && ratio <= 1.05;
        System.out.printf("%s: stable-minute: ratio %.3f%n", same ? "PASS" : "FAIL", ratio);
        System.exit(same ? 0 : 1);
    }
}
