import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.ToLongFunction;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A rolling upgrade of three live members from the classic to the consumer protocol and back, under load: every record
 * is processed exactly once, and no partition has two owners at a time.
 *
 * <p>All members live in this process. Their callbacks and what they process go through one lock, so there is one order
 * and no clock is compared. A member owns a partition from the moment onPartitionsAssigned is entered until
 * onPartitionsRevoked, which commits, is about to return. A revocation lingers a random moment before it commits: a
 * coordinator that hands out partitions too early is caught by that.
 */
public final class RollingUpgrade {
    private static final int PARTITIONS = 12;
    private static final int MEMBERS = 3;
    private static final int RECORDS_PER_SECOND = 360;
    private static final Duration COMMIT_EVERY = Duration.ofMillis(250);
    private static final Duration LIMIT = Duration.ofSeconds(60);
    private static final int PROBLEMS_TOLD = 100;

    /** What the members do, in one order, and what is wrong with it. */
    private static final class Ledger {
        private final long beganNs = System.nanoTime();
        private final List<String> history = new ArrayList<>();
        private final String[] owners = new String[PARTITIONS];
        private final BitSet[] offsets = new BitSet[PARTITIONS];
        private final BitSet[] sequences = new BitSet[PARTITIONS];
        private final long[] nextOffsets = new long[PARTITIONS];
        private long processed;
        private long duplicates;
        private long twoOwners;
        private long revocations;
        private long refusedCommits;
        private int problems;

        Ledger() {
            Arrays.setAll(offsets, p -> new BitSet());
            Arrays.setAll(sequences, p -> new BitSet());
        }

        synchronized void tell(String text) {
            history.add(String.format("%9.3f %s", (System.nanoTime() - beganNs) / 1e9, text));
        }

        synchronized void problem(String text) {
            if (++problems <= PROBLEMS_TOLD) {
                tell("WRONG: " + text);
            }
        }

        synchronized void assigned(String member, int epoch, Collection<TopicPartition> partitions) {
            tell(member + " is assigned " + numbers(partitions) + " in epoch " + epoch);
            for (TopicPartition p : partitions) {
                String owner = owners[p.partition()];
                if (owner != null) {
                    twoOwners++;
                    problem(member + " is assigned partition " + p.partition() + " while " + owner + " owns it");
                }
                owners[p.partition()] = member;
            }
        }

        synchronized void released(String member, Collection<TopicPartition> partitions) {
            tell(member + " has released " + numbers(partitions));
            revocations += partitions.isEmpty() ? 0 : 1;
            for (TopicPartition p : partitions) {
                if (!member.equals(owners[p.partition()])) {
                    problem(member + " releases partition " + p.partition() + " of " + owners[p.partition()]);
                } else {
                    owners[p.partition()] = null;
                }
            }
        }

        synchronized void process(String member, ConsumerRecord<byte[], byte[]> r) {
            int p = r.partition();
            int offset = Math.toIntExact(r.offset());
            String what = member + ", partition " + p + ", offset " + offset;
            processed++;
            if (!member.equals(owners[p])) {
                problem(what + ": processed while " + owners[p] + " owns the partition");
            }
            if (offsets[p].get(offset)) {
                duplicates++;
                problem(what + ": processed before");
            } else if (offset != nextOffsets[p]) {
                problem(what + ": offset " + nextOffsets[p] + " should be next");
            }
            offsets[p].set(offset);
            nextOffsets[p] = offset + 1L;
            sequences[p].set(Math.toIntExact(ByteBuffer.wrap(r.value()).getLong()));
        }

        synchronized void refusedCommit(String member, Exception e) {
            refusedCommits++;
            tell(member + " may not commit now: " + e.getClass().getSimpleName());
        }

        synchronized boolean owned(Collection<Member> members) {
            List<String> all = Arrays.asList(owners);
            return members.stream().allMatch(m -> all.contains(m.name)) && !all.contains(null);
        }

        /** Whether every sequence below the given ones has been processed. */
        synchronized boolean caughtUp(long[] sent) {
            return missing(sent) == 0;
        }

        synchronized long missing(long[] sent) {
            long count = 0;
            for (int p = 0; p < PARTITIONS; p++) {
                count += sent[p] - sequences[p].get(0, Math.toIntExact(sent[p])).cardinality();
            }
            return count;
        }

        /** Records that stand in the log twice: the producer's doing, not the group's. */
        synchronized long repeated() {
            long count = 0;
            for (int p = 0; p < PARTITIONS; p++) {
                count += offsets[p].cardinality() - sequences[p].cardinality();
            }
            return count;
        }

        private static String numbers(Collection<TopicPartition> partitions) {
            return partitions.stream().map(TopicPartition::partition).sorted().toList().toString();
        }
    }

    /** A steady load: numbered records, one partition after the other, until it is told to stop. */
    private static final class Load implements Runnable {
        private final KafkaProducer<byte[], byte[]> producer;
        private final String topic;
        private final Ledger ledger;
        private final long[] sent = new long[PARTITIONS];
        private final Thread thread = new Thread(this, "load");
        private volatile boolean ending;
        private long lastAckNs = System.nanoTime();
        private long pauseNs;

        Load(String bootstrap, String topic, Ledger ledger) {
            this.topic = topic;
            this.ledger = ledger;
            Properties p = new Properties();
            p.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
            p.put(ProducerConfig.ACKS_CONFIG, "all");
            p.put(ProducerConfig.LINGER_MS_CONFIG, "0");
            p.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class.getName());
            p.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class.getName());
            producer = new KafkaProducer<>(p);
            thread.start();
        }

        @Override
        public void run() {
            long due = System.nanoTime();
            for (int p = 0; !ending; p = (p + 1) % PARTITIONS) {
                producer.send(new ProducerRecord<>(topic, p, null, number(p)), (told, e) -> {
                    if (e != null) {
                        ledger.problem("the producer: " + e);
                    }
                    acked();
                });
                due += TimeUnit.SECONDS.toNanos(1) / RECORDS_PER_SECOND;
                LockSupport.parkNanos(due - System.nanoTime());
            }
            producer.close();
        }

        private synchronized byte[] number(int partition) {
            return ByteBuffer.allocate(Long.BYTES).putLong(sent[partition]++).array();
        }

        private synchronized void acked() {
            long now = System.nanoTime();
            pauseNs = Math.max(pauseNs, now - lastAckNs);
            lastAckNs = now;
        }

        synchronized long[] sent() {
            return sent.clone();
        }

        /** Returns when everything is acknowledged. */
        void end() throws InterruptedException {
            ending = true;
            thread.join();
        }
    }

    /** One consumer on a thread of its own. */
    private static final class Member implements ConsumerRebalanceListener, Runnable {
        private final String name;
        private final Ledger ledger;
        private final Random random;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
        private final Thread thread;
        private volatile boolean leaving;

        Member(String name, Properties p, String topic, Ledger ledger, long seed) {
            this.name = name;
            this.ledger = ledger;
            this.random = new Random(seed);
            p.put(ConsumerConfig.CLIENT_ID_CONFIG, name);
            p.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
            p.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
            p.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
            p.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
            ledger.tell(name + " begins");
            consumer = new KafkaConsumer<>(p);
            consumer.subscribe(List.of(topic), this);
            thread = new Thread(this, name);
            thread.start();
        }

        @Override
        public void run() {
            // Closing revokes, and revoking commits.
            try (consumer) {
                long committedNs = System.nanoTime();
                while (!leaving) {
                    for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(50))) {
                        ledger.process(name, r);
                        uncommitted.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                    }
                    if (System.nanoTime() - committedNs > COMMIT_EVERY.toNanos()) {
                        commitAll();
                        committedNs = System.nanoTime();
                    }
                }
                ledger.tell(name + " closes");
            } catch (RuntimeException e) {
                ledger.problem(name + ": " + e);
            }
            ledger.tell(name + " is closed");
        }

        private void commitAll() {
            try {
                consumer.commitSync(uncommitted);
                uncommitted.clear();
            } catch (RebalanceInProgressException e) {
                // Not lost: the revocation commits it, or the next turn.
                ledger.refusedCommit(name, e);
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            ledger.assigned(name, consumer.groupMetadata().generationId(), partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(random.nextInt(150)));
            Map<TopicPartition, OffsetAndMetadata> last = new HashMap<>(uncommitted);
            last.keySet().retainAll(partitions);
            try {
                consumer.commitSync(last);
            } catch (RuntimeException e) {
                ledger.problem(name + " cannot commit what is revoked: " + e);
            }
            uncommitted.keySet().removeAll(partitions);
            ledger.released(name, partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            ledger.problem(name + " has lost " + Ledger.numbers(partitions) + ": it was taken for dead");
            uncommitted.keySet().removeAll(partitions);
            ledger.released(name, partitions);
        }

        void leave() throws InterruptedException {
            leaving = true;
            thread.join();
        }
    }

    private static void await(Callable<Boolean> done, String what) throws Exception {
        long end = System.nanoTime() + LIMIT.toNanos();
        while (!done.call()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("timed out waiting until " + what);
            }
            TimeUnit.MILLISECONDS.sleep(20);
        }
    }

    /** One group that goes there and back with one assignor. */
    private static final class Roll {
        private final String bootstrap;
        private final Class<?> assignor;
        private final boolean fixed;
        private final Random random;
        private final Admin admin;
        private final String group = "rolling-upgrade-" + UUID.randomUUID();
        private final Ledger ledger = new Ledger();
        private final List<Member> members = new ArrayList<>();
        private final List<GroupType> types = new ArrayList<>();
        private Load load;
        private long losses;
        private int made;

        /** With `fixed` the members are static: one that is replaced keeps what it owns for its successor. */
        Roll(String bootstrap, Class<?> assignor, boolean fixed, Random random, Admin admin) {
            this.bootstrap = bootstrap;
            this.assignor = assignor;
            this.fixed = fixed;
            this.random = random;
            this.admin = admin;
        }

        private Member member(boolean consumer) {
            Properties p = new Properties();
            p.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
            p.put(ConsumerConfig.GROUP_ID_CONFIG, group);
            if (fixed) {
                p.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, "instance-" + made % MEMBERS);
            }
            p.put(ConsumerConfig.GROUP_PROTOCOL_CONFIG, consumer ? "consumer" : "classic");
            if (!consumer) {
                p.put(ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG, assignor.getName());
                p.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, "500");
            }
            String name = (consumer ? "consumer-" : "classic-") + ++made;
            return new Member(name, p, group, ledger, random.nextLong());
        }

        /** Until every member owns something, all is owned, and what has been sent by then is processed. */
        private void settled() throws Exception {
            await(() -> ledger.owned(members), members.size() + " members own all partitions");
            long[] sent = load.sent();
            await(() -> ledger.caughtUp(sent), "all partitions are consumed");
        }

        private boolean described(GroupType type, int upgraded) throws Exception {
            ConsumerGroupDescription told;
            try {
                told = admin.describeConsumerGroups(List.of(group)).all().get(30, TimeUnit.SECONDS).get(group);
            } catch (ExecutionException e) {
                ledger.problem("the group cannot be described: " + e.getCause());
                return true;
            }
            long count = told.members().stream().filter(m -> m.upgraded().orElse(false)).count();
            ledger.tell("the group is " + told.type() + ", " + told.groupState() + ", " + count + " of " + told.members().size()
                + " members upgraded");
            if (types.isEmpty() || types.get(types.size() - 1) != told.type()) {
                types.add(told.type());
            }
            return told.type() == type && told.groupState() == GroupState.STABLE && told.members().size() == MEMBERS
                && count == upgraded;
        }

        /** `upgraded` of the members speak the consumer protocol; with one of them the group is a consumer group. */
        private void isOf(int upgraded) throws Exception {
            settled();
            GroupType type = upgraded == 0 ? GroupType.CLASSIC : GroupType.CONSUMER;
            await(() -> described(type, upgraded), "the group is " + type + " and stable with " + upgraded + " upgraded members");
        }

        private void replaceAll(boolean consumer) throws Exception {
            for (int i = 1; i <= MEMBERS; i++) {
                Member old = members.remove(0);
                old.leave();
                if (!fixed && random.nextBoolean()) {
                    settled();
                } else {
                    // Into the middle of what the others do about the leave.
                    TimeUnit.MILLISECONDS.sleep(random.nextInt(700));
                }
                members.add(member(consumer));
                isOf(consumer ? i : MEMBERS - i);
            }
        }

        private void closeAll() throws InterruptedException {
            for (Member m : members) {
                m.leaving = true;
            }
            for (Member m : members) {
                m.leave();
            }
        }

        private void committedIsProcessed() throws Exception {
            Map<TopicPartition, OffsetAndMetadata> committed =
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(30, TimeUnit.SECONDS);
            for (int p = 0; p < PARTITIONS; p++) {
                OffsetAndMetadata told = committed.get(new TopicPartition(group, p));
                if (told == null || told.offset() != ledger.nextOffsets[p]) {
                    ledger.problem("partition " + p + ": processed up to " + ledger.nextOffsets[p] + ", committed " + told);
                }
            }
        }

        void run(int rounds) throws Exception {
            admin.createTopics(List.of(new NewTopic(group, PARTITIONS, (short) 1))).all().get(30, TimeUnit.SECONDS);
            load = new Load(bootstrap, group, ledger);
            try {
                for (int i = 0; i < MEMBERS; i++) {
                    members.add(member(false));
                }
                isOf(0);
                for (int round = 0; round < rounds; round++) {
                    replaceAll(true);
                    replaceAll(false);
                }
                load.end();
                await(() -> ledger.caughtUp(load.sent()), "everything is processed");
            } catch (IllegalStateException e) {
                ledger.problem(e.getMessage());
            } finally {
                load.end();
                closeAll();
            }
            committedIsProcessed();
            losses = ledger.missing(load.sent());
            if (losses > 0) {
                ledger.problem(losses + " records were sent and never processed");
            }
            if (ledger.repeated() > 0) {
                ledger.problem("the producer's retries wrote " + ledger.repeated() + " records twice");
            }
            List<GroupType> wanted = new ArrayList<>(List.of(GroupType.CLASSIC));
            for (int round = 0; round < rounds; round++) {
                Collections.addAll(wanted, GroupType.CONSUMER, GroupType.CLASSIC);
            }
            if (!types.equals(wanted)) {
                ledger.problem("the group was in turn " + types);
            }
            if (ledger.problems > 0) {
                ledger.history.forEach(line -> System.out.println("  " + line));
            }
            System.out.printf("  %s, %s members: %s; %d members, %d records, %d ms at most between two acknowledgements,"
                    + " %d revocations, %d commits put off; duplicates %d, losses %d, two owners %d, problems %d%n",
                assignor.getSimpleName(), fixed ? "static" : "dynamic",
                String.join(" -> ", types.stream().map(GroupType::toString).toList()), made, ledger.processed,
                TimeUnit.NANOSECONDS.toMillis(load.pauseNs), ledger.revocations, ledger.refusedCommits, ledger.duplicates,
                losses, ledger.twoOwners, ledger.problems);
        }
    }

    private static long sum(List<Roll> rolls, ToLongFunction<Roll> number) {
        return rolls.stream().mapToLong(number).sum();
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        int rounds = args.length > 1 ? Integer.parseInt(args[1]) : 1;
        long seed = args.length > 2 ? Long.parseLong(args[2]) : System.nanoTime();
        Random random = new Random(seed);
        System.out.println("rolling-upgrade: seed " + seed);
        List<Roll> rolls = new ArrayList<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (Class<?> assignor : List.of(RangeAssignor.class, CooperativeStickyAssignor.class)) {
                for (boolean fixed : new boolean[] {false, true}) {
                    Roll roll = new Roll(bootstrap, assignor, fixed, random, admin);
                    rolls.add(roll);
                    roll.run(rounds);
                }
            }
        }
        boolean holds = rolls.stream().allMatch(r -> r.ledger.problems == 0);
        System.out.printf("rolling-upgrade: %s: %d groups of %d live members to the consumer protocol and back %d times, %d records:"
                + " duplicates %d, losses %d, two owners %d, problems %d%n",
            holds ? "PASS" : "FAIL", rolls.size(), MEMBERS, rounds, sum(rolls, r -> r.ledger.processed),
            sum(rolls, r -> r.ledger.duplicates), sum(rolls, r -> r.losses), sum(rolls, r -> r.ledger.twoOwners),
            sum(rolls, r -> r.ledger.problems));
        System.exit(holds ? 0 : 1);
    }
}
