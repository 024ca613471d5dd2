"""One member that reads and commits, and tells everything it does, by confluent-kafka: see tests/operated/members.py."""

import json
import os
import queue
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

ARGS = dict(word.split("=", 1) for word in sys.argv[1:])
TOPIC, COMMITS = ARGS["topic"], ARGS["commits"]
COMMANDS = queue.Queue()
lock = threading.Lock()
positions, owned = {}, set()
last_error = None


def tell(event, **rest):
    with lock:
        sys.stdout.write(json.dumps({"ev": event, "t": int(time.time() * 1e6), **rest}) + "\n")
        sys.stdout.flush()


def outcome(error):
    """Of a KafkaError, an exception that holds one, or None."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    if error is None:
        return dict(ok=True)
    return dict(ok=False, err=error.name().lstrip("_"), msg=error.str())


def told(error):
    global last_error
    if error.name() != last_error:
        tell("error", err=error.name().lstrip("_"), msg=error.str())
    last_error = error.name()


def commit(offsets):
    """Synchronously; returns how it ended."""
    try:
        rows = consumer.commit(offsets=[TopicPartition(TOPIC, p, o) for p, o in sorted(offsets.items())], asynchronous=False)
    except KafkaException as e:
        return outcome(e)
    return outcome(next((row.error for row in rows if row.error), None))


def committed(error, rows):
    """Of an asynchronous commit."""
    error = error or next((row.error for row in rows or () if row.error), None)
    tell("commit", **outcome(error))


def on_assign(_, partitions):
    owned.update(p.partition for p in partitions)
    tell("assigned", p=[p.partition for p in partitions], member=consumer.memberid())


def on_revoke(_, partitions):
    indexes = [p.partition for p in partitions]
    done = {p: positions[p] for p in indexes if p in positions}
    if COMMITS == "revoke" and done:
        tell("commit", **commit(done))
    for p in indexes:
        positions.pop(p, None)
    owned.difference_update(indexes)
    tell("revoked", p=indexes)


def on_lost(_, partitions):
    for p in partitions:
        positions.pop(p.partition, None)
        owned.discard(p.partition)
    tell("lost", p=[p.partition for p in partitions])


def read():
    global last_error
    rows, done = [], {}
    for message in consumer.consume(100, timeout=0.05):
        if message.error():
            told(message.error())
            continue
        last_error = None
        rows.append((message.partition(), message.offset(), message.value().decode()))
        done[message.partition()] = message.offset() + 1
    if not rows:
        return
    tell("read", m=rows)
    positions.update(done)
    if COMMITS == "sync":
        tell("commit", **commit(done))
    elif COMMITS == "revoke":
        consumer.commit(offsets=[TopicPartition(TOPIC, p, o) for p, o in done.items()], asynchronous=True)
    elif COMMITS == "auto":
        for p, o in done.items():
            try:
                consumer.store_offsets(offsets=[TopicPartition(TOPIC, p, o)])
            except KafkaException as e:
                # It has just lost the partition.
                if e.args[0].code() != KafkaError._STATE:
                    raise


def obey(line):
    """Returns whether to go on."""
    words = line.split()
    if words[0] == "close":
        consumer.close()
        tell("done", ok=True)
        return False
    if words[0] == "hold":
        tell("holds")
        time.sleep(int(words[1]) / 1000)
        tell("done", ok=True)
    elif words[0] in ("commit", "insist"):
        numbers = [int(word) for word in words[1:]]
        offsets = dict(zip(numbers[::2], numbers[1::2]))
        is_lost = words[0] == "commit" and "parts" not in ARGS and not owned.issuperset(offsets)
        tell("done", **(dict(ok=False, err="LOST") if is_lost else commit(offsets)))
    elif words[0] == "config":
        tell("done", **configure(words[1], words[2]))
    return True


def configure(key, value):
    """Sets a config of the group and reads it back."""
    admin = AdminClient({"bootstrap.servers": ARGS["bootstrap"]})
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    try:
        wait(admin.incremental_alter_configs([ConfigResource(ResourceType.GROUP, ARGS["group"], incremental_configs=[entry])]))
        configs = wait(admin.describe_configs([ConfigResource(ResourceType.GROUP, ARGS["group"])]))
    except KafkaException as e:
        return outcome(e)
    return dict(ok=True, value=configs[key].value)


def wait(futures):
    (future,) = futures.values()
    return future.result(20)


def listen():
    for line in sys.stdin:
        COMMANDS.put(line)
    # Whoever started it is gone.
    os._exit(1)


settings = {
    "bootstrap.servers": ARGS["bootstrap"],
    "group.id": ARGS["group"],
    "client.id": ARGS["client"],
    "auto.offset.reset": "earliest",
    "enable.auto.commit": COMMITS == "auto",
    "auto.commit.interval.ms": 200,
    # What was read is stored once it was told.
    "enable.auto.offset.store": False,
    "fetch.wait.max.ms": 100,
    "max.poll.interval.ms": int(ARGS["rebalance_ms"]),
    "on_commit": committed,
    "error_cb": told,
    "log_level": 0,
}
if "instance" in ARGS:
    settings["group.instance.id"] = ARGS["instance"]
if ARGS["protocol"] == "consumer":
    settings["group.protocol"] = "consumer"
else:
    settings["partition.assignment.strategy"] = "cooperative-sticky" if ARGS["protocol"] == "cooperative" else "range"
    settings["session.timeout.ms"] = int(ARGS["session_ms"])
    settings["heartbeat.interval.ms"] = 500
consumer = Consumer(settings)
threading.Thread(target=listen, daemon=True).start()
if "parts" in ARGS:
    parts = [TopicPartition(TOPIC, int(p)) for p in ARGS["parts"].split(",")]
    consumer.assign(parts)
else:
    consumer.subscribe([TOPIC], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
going_on = True
while going_on:
    try:
        going_on = obey(COMMANDS.get_nowait())
    except queue.Empty:
        try:
            read()
        except KafkaException as e:
            told(e.args[0])
            time.sleep(0.1)
