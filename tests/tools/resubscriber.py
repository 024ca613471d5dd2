"""One librdkafka consumer that can change its subscription and offer several assignors, which the judges' agents do not.

It speaks their line protocol (PROTOCOL.md of the judges): JSON commands on stdin, answers and events on stdout.

    subscribe   group, topics, protocol, assignors ("range,roundrobin"), session_ms, instance?; again: other topics
    close       leaves and ends
"""

import json
import os
import queue
import sys
import threading
import time

from confluent_kafka import Consumer

COMMANDS = queue.Queue()


def say(**what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def event(name):
    return lambda _, partitions: say(ev=name, t=time.time() * 1e6, p=[[p.topic, p.partition] for p in partitions])


def consumer(c):
    settings = {
        "bootstrap.servers": os.environ["BOOTSTRAP"],
        "client.id": "resubscriber",
        "group.id": c["group"],
        "group.protocol": c["protocol"],
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    if c["protocol"] == "classic":
        settings["partition.assignment.strategy"] = c["assignors"]
        settings["session.timeout.ms"] = c["session_ms"]
        settings["heartbeat.interval.ms"] = 500
    if c.get("instance"):
        settings["group.instance.id"] = c["instance"]
    return Consumer(settings)


def read():
    for line in sys.stdin:
        COMMANDS.put(json.loads(line))
    COMMANDS.put({"id": -1, "cmd": "close"})


def main():
    threading.Thread(target=read, daemon=True).start()
    member = None
    while True:
        try:
            c = COMMANDS.get(timeout=None if member is None else 0)
        except queue.Empty:
            member.poll(0.02)
            continue
        if c["cmd"] == "subscribe":
            member = member or consumer(c)
            member.subscribe(c["topics"], on_assign=event("assigned"), on_revoke=event("revoked"), on_lost=event("lost"))
        elif member is not None:
            member.close()
        say(id=c["id"], ok=True, r=None)
        if c["cmd"] == "close":
            return


main()
