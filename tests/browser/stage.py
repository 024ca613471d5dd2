"""What the checks of the page act on: a live server with topics, real members and committers, and a browser."""

import json
import os
import sys
import threading
import time
import urllib.parse
import urllib.request

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from playwright.sync_api import expect

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import kafka
from server import await_topic

PARTITIONS = 6
RECORDS = 100
WAIT_SECONDS = 60
# What a page has to show is there as soon as the server has told it.
SHOWN_SECONDS = 20

# Chromium must not look for hosts of its own: there is no network but this machine's.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Failed(Exception):
    """A check does not hold."""


def until(what, holds, seconds=WAIT_SECONDS):
    """Waits until `holds()` is true; returns what it returned."""
    end = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed("after %d s still not: %s" % (seconds, what))
        time.sleep(0.05)


class Member(threading.Thread):
    """A real consumer that reads and commits until it is told to leave."""

    def __init__(self, stage, group, client, topic, **settings):
        super().__init__(daemon=True)
        self.client, self.topic = client, topic
        self.seen, self.owned, self.lock = {}, set(), threading.Lock()
        self.leaving = threading.Event()
        names = {k.replace("_", "."): v for k, v in settings.items()}
        self.consumer = Consumer({
            "bootstrap.servers": stage.bootstrap,
            "group.id": group,
            "client.id": client,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **names,
        })
        self.start()

    def run(self):
        self.consumer.subscribe([self.topic], on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_revoke)
        while not self.leaving.is_set():
            message = self.consumer.poll(0.1)
            if message is None or message.error():
                continue
            with self.lock:
                self.seen.setdefault(message.partition(), []).append(message.offset())
            try:
                self.consumer.commit(message=message, asynchronous=True)
            except KafkaException:
                pass  # it has just lost the partition
        self.consumer.close()

    def on_assign(self, consumer, partitions):
        with self.lock:
            self.owned |= {p.partition for p in partitions}

    def on_revoke(self, consumer, partitions):
        with self.lock:
            self.owned -= {p.partition for p in partitions}

    def forget(self):
        """From now on only what is read anew counts."""
        with self.lock:
            self.seen = {}

    def read(self):
        """Partition -> the offsets that were read, in order."""
        with self.lock:
            return {p: list(offsets) for p, offsets in self.seen.items()}

    def leave(self):
        self.leaving.set()
        self.join(WAIT_SECONDS)


class Stage:
    """The server's world as the checks find it."""

    def __init__(self, server, browser):
        self.server, self.browser = server, browser
        self.bootstrap = "127.0.0.1:%d" % server.port
        self.base = "http://127.0.0.1:%d" % server.http
        self.members, self.others = [], []
        self.told = []

    # ------------------------------------------------------------ the server

    def api(self, method, path, body=None):
        """Asks the API as a program would. Returns (status, document)."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read() or b"null")

    def group(self, group):
        return self.api("GET", "/v1/groups/" + urllib.parse.quote(group, safe=""))[1]

    def committed(self, group):
        """(topic, partition) -> offset."""
        return {(c["topic"], c["partition"]): c["offset"] for c in self.group(group)["commits"]}

    def fill(self, topic):
        """Makes a topic with records in each partition."""
        await_topic(self.server.port, topic, PARTITIONS)
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for partition in range(PARTITIONS):
            for n in range(RECORDS):
                producer.produce(topic, b"record %d" % n, partition=partition)
        if producer.flush(WAIT_SECONDS) != 0:
            raise Failed("not all records could be written to %s" % topic)

    def member(self, group, client, topic, **settings):
        member = Member(self, group, client, topic, **settings)
        self.members.append(member)
        return member

    def await_stable(self, group, count):
        def stable():
            summary = self.group(group).get("summary", {})
            return summary.get("state") == "Stable" and summary.get("member_count") == count

        until("%s stable with %d members" % (group, count), stable)

    def await_committed(self, group, topic):
        wanted = {(topic, p): RECORDS for p in range(PARTITIONS)}
        until("%s committed to the end" % group, lambda: self.committed(group) == wanted)

    def commit(self, group, client, topic, partition, offset):
        """A commit in assign mode by a real client."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "client.id": client, "log_level": 0})
        consumer.assign([TopicPartition(topic, partition, offset)])
        consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
        self.others.append(consumer)

    def commit_many(self, groups, topic):
        """One commit for each of many groups, without waiting for each."""
        c = kafka.Connection(self.server.port, timeout=WAIT_SECONDS)
        for start in range(0, len(groups), 500):
            some = groups[start : start + 500]
            for group in some:
                partition = kafka.i32(1) + kafka.i32(0) + kafka.i64(1) + kafka.i32(-1) + kafka.string("")
                head = kafka.string(group) + kafka.i32(-1) + kafka.string("") + kafka.string(None)
                c.send("OffsetCommit", head + kafka.i32(1) + kafka.string(topic) + partition)
            for group in some:
                errors = kafka.commit_errors(c.receive()[1])
                if any(errors.values()):
                    raise Failed("commit of %r: %s" % (group, errors))
        c.close()

    def end(self):
        for member in self.members:
            member.leaving.set()
        for member in self.members:
            member.join(WAIT_SECONDS)
        for consumer in self.others:
            consumer.close()

    # ------------------------------------------------------------ the browser

    def page(self, **options):
        """A fresh page that remembers what it was told and what it asked for."""
        context = self.browser.new_context(viewport={"width": 1280, "height": 860}, locale="en-GB", **options)
        context.set_default_timeout(SHOWN_SECONDS * 1000)
        expect.set_options(timeout=SHOWN_SECONDS * 1000)
        page = context.new_page()
        page.on("pageerror", lambda error: self.told.append("error: %s" % error))
        page.on("console", self.hear)
        page.on("request", self.watch)
        page.on("dialog", lambda dialog: self.told.append("a script ran: %s" % dialog.message))
        return page

    def hear(self, message):
        # What the server refuses is logged by the browser as well; the page shows it.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.told.append("console: %s" % message.text)

    def watch(self, request):
        if not request.url.startswith((self.base + "/", "blob:")):
            self.told.append("asked for %s" % request.url)

    def open(self, page, path=""):
        page.goto(self.base + "/#/" + path)

    def open_group(self, page, group, tab=""):
        self.open(page, "groups/%s%s" % (urllib.parse.quote(group, safe=""), "/" + tab if tab else ""))
        expect(page.locator("#panel")).to_be_visible()
