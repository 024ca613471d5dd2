import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Three eager members over several rebalances: every onPartitionsRevoked of a rebalance ends before any
 * onPartitionsAssigned of it begins.
 *
 * <p>All members live in this process, so their callbacks have one order and no clock is compared. A revocation lingers a
 * random moment before it counts as done: a coordinator that hands out partitions too early is caught by that.
 */
public final class EagerOrder {
    private static final int PARTITIONS = 6;
    private static final Duration LIMIT = Duration.ofSeconds(45);

    /** What a callback told, in the order of the list it is in. */
    private record Event(String member, boolean assigned, int generation, Set<TopicPartition> partitions) {}

    private static final List<Event> EVENTS = new ArrayList<>();
    private static final List<String> PROBLEMS = new ArrayList<>();

    private static void tell(Event event) {
        synchronized (EVENTS) {
            EVENTS.add(event);
        }
    }

    private static void problem(String text) {
        synchronized (EVENTS) {
            PROBLEMS.add(text);
        }
    }

    /** One consumer on a thread of its own. */
    private static final class Member implements ConsumerRebalanceListener, Runnable {
        private final String name;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Thread thread;
        private final Random random;
        private volatile boolean leaving;
        private volatile boolean rejoin;
        private volatile int generation = -1;
        private volatile Set<TopicPartition> held = Set.of();

        Member(String name, String bootstrap, String group, String topic, long seed) {
            this.name = name;
            this.random = new Random(seed);
            Properties p = new Properties();
            p.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
            p.put(ConsumerConfig.GROUP_ID_CONFIG, group);
            p.put(ConsumerConfig.CLIENT_ID_CONFIG, name);
            p.put(ConsumerConfig.GROUP_PROTOCOL_CONFIG, "classic");
            p.put(ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG, RangeAssignor.class.getName());
            p.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, "20000");
            p.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, "100");
            p.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
            p.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
            p.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
            consumer = new KafkaConsumer<>(p);
            consumer.subscribe(List.of(topic), this);
            thread = new Thread(this, name);
            thread.start();
        }

        @Override
        public void run() {
            try (consumer) {
                while (!leaving) {
                    if (rejoin) {
                        rejoin = false;
                        consumer.enforceRebalance("eager-order asks for one");
                    }
                    consumer.poll(Duration.ofMillis(50));
                }
            } catch (WakeupException e) {
                // only sent when leaving
            } catch (RuntimeException e) {
                problem(name + ": " + e);
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            int now = consumer.groupMetadata().generationId();
            tell(new Event(name, true, now, Set.copyOf(partitions)));
            held = Set.copyOf(partitions);
            generation = now;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            try {
                TimeUnit.MILLISECONDS.sleep(random.nextInt(150));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            tell(new Event(name, false, generation, Set.copyOf(partitions)));
            held = Set.of();
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            problem(name + " lost " + partitions + ": it was taken for dead");
        }

        void leave() throws InterruptedException {
            leaving = true;
            thread.join();
        }
    }

    private static void await(BooleanSupplier done, String what) throws InterruptedException {
        long end = System.nanoTime() + LIMIT.toNanos();
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("timed out waiting for " + what);
            }
            TimeUnit.MILLISECONDS.sleep(20);
        }
    }

    /** Until all are in one generation above `above`, and together hold every partition once. */
    private static int settled(Collection<Member> members, int above) throws InterruptedException {
        await(() -> {
            int generation = members.iterator().next().generation;
            Set<TopicPartition> all = new HashSet<>();
            int count = 0;
            for (Member m : members) {
                if (m.generation != generation || m.generation <= above) {
                    return false;
                }
                all.addAll(m.held);
                count += m.held.size();
            }
            return all.size() == PARTITIONS && count == PARTITIONS;
        }, members.size() + " members in one generation above " + above);
        return members.iterator().next().generation;
    }

    /** Every revocation of what was held in a generation comes before any assignment of a later one. */
    private static void judge(List<Event> events) {
        Map<String, Event> holding = new HashMap<>();
        for (Event e : events) {
            if (!e.assigned()) {
                Event had = holding.remove(e.member());
                Set<TopicPartition> parts = had == null ? Set.of() : had.partitions();
                if (!parts.equals(e.partitions())) {
                    problem(e.member() + " revoked " + e.partitions() + " and held " + parts);
                }
                continue;
            }
            for (Event other : holding.values()) {
                if (other.generation() < e.generation()) {
                    problem(e.member() + " was assigned generation " + e.generation() + " while " + other.member()
                        + " still held its partitions of generation " + other.generation());
                }
            }
            if (!e.partitions().isEmpty()) {
                holding.put(e.member(), e);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        int rounds = args.length > 1 ? Integer.parseInt(args[1]) : 8;
        long seed = args.length > 2 ? Long.parseLong(args[2]) : System.nanoTime();
        Random random = new Random(seed);
        String name = "eager-order-" + UUID.randomUUID();
        System.out.println("eager-order: seed " + seed);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(name, PARTITIONS, (short) 1))).all().get(30, TimeUnit.SECONDS);
        }
        List<Member> members = new ArrayList<>();
        int generation = -1;
        int made = 0;
        try {
            for (int i = 0; i < 3; i++) {
                members.add(new Member("member-" + ++made, bootstrap, name, name, random.nextLong()));
                generation = settled(members, generation);
            }
            for (int round = 0; round < rounds; round++) {
                Member chosen = members.get(random.nextInt(members.size()));
                if (round % 2 == 0) {
                    members.remove(chosen);
                    chosen.leave();
                    generation = settled(members, generation);
                    members.add(new Member("member-" + ++made, bootstrap, name, name, random.nextLong()));
                } else {
                    chosen.rejoin = true;
                }
                generation = settled(members, generation);
            }
        } catch (IllegalStateException e) {
            problem(e.getMessage());
        } finally {
            for (Member m : members) {
                m.leave();
            }
        }
        long revocations;
        synchronized (EVENTS) {
            judge(EVENTS);
            revocations = EVENTS.stream().filter(e -> !e.assigned() && !e.partitions().isEmpty()).count();
            PROBLEMS.stream().limit(10).forEach(p -> System.out.println("  " + p));
        }
        System.out.println("eager-order: " + (PROBLEMS.isEmpty() ? "PASS" : "FAIL") + ": generation " + generation + ", " + revocations
            + " revocations, each before any assignment of its rebalance");
        System.exit(PROBLEMS.isEmpty() ? 0 : 1);
    }
}
