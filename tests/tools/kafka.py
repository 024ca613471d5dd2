"""A small Kafka client on plain sockets, for the scripts in tests/scripts.

It speaks one fixed version of each API it needs, non-flexible but for what consumer groups ask for, so that it shares
nothing with the server's codec and needs nothing but Python. It is no library: no metadata cache, no retries, no
version negotiation.
"""

import collections
import socket
import struct

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
INVALID_COMMIT_OFFSET_SIZE = 28
TOPIC_ALREADY_EXISTS = 36
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
LOADING = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)

# API name -> (key, the version spoken here)
APIS = {
    "Produce": (0, 7),
    "Fetch": (1, 4),
    "ListOffsets": (2, 1),
    "Metadata": (3, 4),
    "OffsetCommit": (8, 7),
    "OffsetFetch": (9, 5),
    "FindCoordinator": (10, 2),
    "JoinGroup": (11, 5),
    "Heartbeat": (12, 3),
    "LeaveGroup": (13, 3),
    "SyncGroup": (14, 3),
    "DescribeGroups": (15, 4),
    "ListGroups": (16, 2),
    "ApiVersions": (18, 0),
    "CreateTopics": (19, 4),
    "DeleteTopics": (20, 1),
    "CreatePartitions": (37, 1),
    "DeleteGroups": (42, 1),
    "ConsumerGroupHeartbeat": (68, 1),
    "OffsetCommit of consumer groups": (8, 9),
}
FLEXIBLE = ("ConsumerGroupHeartbeat", "OffsetCommit of consumer groups")


class Closed(Exception):
    """The connection ended, or never came to be."""


def i8(v):
    return struct.pack(">b", v)


def i16(v):
    return struct.pack(">h", v)


def i32(v):
    return struct.pack(">i", v)


def i64(v):
    return struct.pack(">q", v)


def string(v):
    if v is None:
        return i16(-1)
    raw = v.encode()
    return i16(len(raw)) + raw


def blob(v):
    return i32(len(v)) + v


def array(items, encode):
    items = list(items)
    return i32(len(items)) + b"".join(encode(x) for x in items)


def uvarint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def compact(v):
    if v is None:
        return b"\0"
    raw = v.encode() if isinstance(v, str) else v
    return uvarint(len(raw) + 1) + raw


def compact_array(items, encode):
    if items is None:
        return b"\0"
    items = list(items)
    return uvarint(len(items) + 1) + b"".join(encode(x) for x in items)


class Reader:
    """Reads what the functions above write."""

    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def take(self, n):
        if n < 0 or self.at + n > len(self.raw):
            raise ValueError("response of %d bytes ends inside a field at %d" % (len(self.raw), self.at))
        self.at += n
        return self.raw[self.at - n : self.at]

    def i8(self):
        return struct.unpack(">b", self.take(1))[0]

    def i16(self):
        return struct.unpack(">h", self.take(2))[0]

    def i32(self):
        return struct.unpack(">i", self.take(4))[0]

    def i64(self):
        return struct.unpack(">q", self.take(8))[0]

    def string(self):
        n = self.i16()
        return None if n < 0 else self.take(n).decode()

    def blob(self):
        n = self.i32()
        return None if n < 0 else self.take(n)

    def array(self, one):
        return [one() for _ in range(max(self.i32(), 0))]

    def uvarint(self):
        out = shift = 0
        while True:
            byte = self.take(1)[0]
            out |= (byte & 0x7F) << shift
            if byte < 0x80:
                return out
            shift += 7

    def compact(self):
        n = self.uvarint() - 1
        return None if n < 0 else self.take(n).decode()

    def compact_array(self, one):
        return [one() for _ in range(max(self.uvarint() - 1, 0))]

    def tags(self):
        for _ in range(self.uvarint()):
            self.uvarint(), self.take(self.uvarint())


def frame(api, correlation, body, client_id="convoke-test", version=None):
    key, spoken = APIS[api]
    head = i16(key) + i16(spoken if version is None else version) + i32(correlation) + string(client_id)
    if api in FLEXIBLE:
        head += b"\0"
    return i32(len(head) + len(body)) + head + body


class Connection:
    """One connection; requests are answered in order."""

    def __init__(self, port, host="127.0.0.1", timeout=15.0):
        self.correlation = 0
        try:
            self.socket = socket.create_connection((host, port), timeout=timeout)
        except OSError as e:
            raise Closed("connect: %s" % e)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local_port = self.socket.getsockname()[1]

    def close(self):
        self.socket.close()

    def send(self, api, body):
        """Sends without waiting; returns the correlation id."""
        self.correlation += 1
        try:
            self.socket.sendall(frame(api, self.correlation, body))
        except OSError as e:
            raise Closed("send: %s" % e)
        return self.correlation

    def _exactly(self, n):
        out = bytearray()
        while len(out) < n:
            try:
                got = self.socket.recv(n - len(out))
            except OSError as e:
                raise Closed("receive: %s" % e)
            if not got:
                raise Closed("closed by the server")
            out += got
        return bytes(out)

    def receive(self):
        """The next answer: (correlation id, reader)."""
        (n,) = struct.unpack(">i", self._exactly(4))
        if not 4 <= n <= 100 << 20:
            raise Closed("an answer of %d bytes" % n)
        r = Reader(self._exactly(n))
        return r.i32(), r

    def call(self, api, body):
        sent = self.send(api, body)
        got, r = self.receive()
        if got != sent:
            raise Closed("answer %d where %d was due" % (got, sent))
        return r

    # Each returns plain values; errors are numbers.

    def api_versions(self):
        r = self.call("ApiVersions", b"")
        error = r.i16()
        if error:
            raise Closed("ApiVersions: error %d" % error)
        return {k: (lo, hi) for k, lo, hi in r.array(lambda: (r.i16(), r.i16(), r.i16()))}

    def create_topic(self, name, partitions, **configs):
        """configs: with `_` for the dots of their names."""
        pairs = array(configs.items(), lambda p: string(p[0].replace("_", ".")) + string(str(p[1])))
        topic = string(name) + i32(partitions) + i16(1) + i32(0) + pairs
        r = self.call("CreateTopics", i32(1) + topic + i32(10_000) + i8(0))
        r.i32()
        ((_, error, message),) = r.array(lambda: (r.string(), r.i16(), r.string()))
        if error not in (NONE, TOPIC_ALREADY_EXISTS):
            raise Closed("CreateTopics %s: error %d %s" % (name, error, message))

    def delete_topic(self, name):
        """The error."""
        r = self.call("DeleteTopics", array([name], string) + i32(10_000))
        r.i32()
        ((_, error),) = r.array(lambda: (r.string(), r.i16()))
        return error

    def grow_topic(self, name, partitions):
        """Gives a topic more partitions."""
        r = self.call("CreatePartitions", i32(1) + string(name) + i32(partitions) + i32(-1) + i32(10_000) + i8(0))
        r.i32()
        ((_, error, message),) = r.array(lambda: (r.string(), r.i16(), r.string()))
        if error:
            raise Closed("CreatePartitions %s: error %d %s" % (name, error, message))

    def produce(self, topic, partition, batch, acks=-1):
        """One record batch. Returns (error, its first offset)."""
        body = string(None) + i16(acks) + i32(10_000) + i32(1) + string(topic) + i32(1) + i32(partition) + blob(batch)
        r = self.call("Produce", body)
        r.i32(), r.string(), r.i32(), r.i32()
        return r.i16(), r.i64()

    def fetch_records(self, topic, partition, offset, wait_ms=0, max_bytes=1 << 20):
        """Returns (error, offset after the last record, the batches' bytes)."""
        r = self.call("Fetch", fetch_body(topic, partition, offset, wait_ms, max_bytes))
        r.i32(), r.i32(), r.string(), r.i32(), r.i32()
        error, end = r.i16(), r.i64()
        r.i64(), r.array(lambda: (r.i64(), r.i64()))
        return error, end, r.blob() or b""

    def list_offset(self, topic, partition, timestamp=-1):
        """Returns (error, offset) for a timestamp; -1: the end, -2: the beginning."""
        r = self.call("ListOffsets", i32(-1) + i32(1) + string(topic) + i32(1) + i32(partition) + i64(timestamp))
        r.i32(), r.string(), r.i32(), r.i32()
        error, _, offset = r.i16(), r.i64(), r.i64()
        return error, offset

    def leaders(self, topic):
        """Partition -> leader node id (below 0: none)."""
        r = self.call("Metadata", array([topic], string) + i8(0))
        r.i32()
        r.array(lambda: (r.i32(), r.string(), r.i32(), r.string()))
        r.string(), r.i32()

        def partition():
            out = r.i16(), r.i32(), r.i32()
            r.array(r.i32), r.array(r.i32)
            return out

        topics = r.array(lambda: (r.i16(), r.string(), r.i8(), r.array(partition)))
        return {p[1]: p[2] if p[0] == NONE else -1 for t in topics if t[0] == NONE for p in t[3]}

    def find_coordinator(self, group):
        """The error; some brokers make the offsets topic at the first call."""
        r = self.call("FindCoordinator", string(group) + i8(0))
        r.i32()
        return r.i16()

    def commit(self, group, topic, offsets, generation=-1, member="", instance=None, metadata=""):
        """offsets: {partition: offset}. Returns {partition: error}."""
        parts = array(sorted(offsets.items()), lambda p: i32(p[0]) + i64(p[1]) + i32(-1) + string(metadata))
        body = string(group) + i32(generation) + string(member) + string(instance) + i32(1) + string(topic) + parts
        return commit_errors(self.call("OffsetCommit", body))

    def fetch(self, group, topic, partitions):
        """Returns (group error, {partition: (offset, metadata, error)})."""
        r = self.call("OffsetFetch", string(group) + i32(1) + string(topic) + array(partitions, i32))
        r.i32()
        out = {}
        for _ in range(r.i32()):
            r.string()
            for _ in range(r.i32()):
                partition, offset, _, metadata, error = r.i32(), r.i64(), r.i32(), r.string(), r.i16()
                out[partition] = (offset, metadata, error)
        return r.i16(), out

    def join(self, group, member, metadata=b"", instance=None, session_ms=30_000, rebalance_ms=30_000):
        """Returns a dict; `members` is {id: metadata}, filled for the leader."""
        protocols = i32(1) + string("range") + blob(metadata)
        body = string(group) + i32(session_ms) + i32(rebalance_ms) + string(member) + string(instance)
        r = self.call("JoinGroup", body + string("consumer") + protocols)
        r.i32()
        out = dict(error=r.i16(), generation=r.i32(), protocol=r.string(), leader=r.string(), member=r.string())
        out["members"] = {m: meta for m, _, meta in r.array(lambda: (r.string(), r.string(), r.blob()))}
        return out

    def sync(self, group, generation, member, assignments=None, instance=None):
        """assignments: {member: bytes} from the leader. Returns (error, own assignment)."""
        pairs = array(sorted((assignments or {}).items()), lambda a: string(a[0]) + blob(a[1]))
        r = self.call("SyncGroup", string(group) + i32(generation) + string(member) + string(instance) + pairs)
        r.i32()
        return r.i16(), r.blob()

    def heartbeat(self, group, generation, member, instance=None):
        r = self.call("Heartbeat", string(group) + i32(generation) + string(member) + string(instance))
        r.i32()
        return r.i16()

    def consumer_heartbeat(self, group, member, epoch, topics=None, owned=None, rebalance_ms=30_000):
        """ConsumerGroupHeartbeat; `topics` and `owned` are None when nothing changed. `owned`: {topic id: partitions}."""

        def partitions(item):
            return item[0] + compact_array(item[1], i32) + b"\0"

        body = compact(group) + compact(member) + i32(epoch) + compact(None) + compact(None)
        body += i32(-1 if topics is None else rebalance_ms) + compact_array(topics, compact) + compact(None) + compact(None)
        body += compact_array(None if owned is None else sorted(owned.items()), partitions) + b"\0"
        r = self.call("ConsumerGroupHeartbeat", body)
        r.tags(), r.i32()
        error, message, member, epoch, interval_ms = r.i16(), r.compact(), r.compact(), r.i32(), r.i32()
        assignment = None
        if r.i8() >= 0:
            assignment = {}

            def topic():
                topic_id = r.take(16)
                assignment[topic_id] = r.compact_array(r.i32)
                r.tags()

            r.compact_array(topic)
        return Beat(error, message, member, epoch, interval_ms, assignment)

    def consumer_commit(self, group, topic, offsets, epoch, member):
        """`commit` by a member of a consumer group."""

        def partition(item):
            return i32(item[0]) + i64(item[1]) + i32(-1) + compact("") + b"\0"

        topics = compact_array([topic], lambda t: compact(t) + compact_array(sorted(offsets.items()), partition) + b"\0")
        body = compact(group) + i32(epoch) + compact(member) + compact(None) + topics + b"\0"
        r = self.call("OffsetCommit of consumer groups", body)
        r.tags(), r.i32()
        out = {}

        def answer():
            at = r.i32()
            out[at] = r.i16()
            r.tags()

        r.compact_array(lambda: (r.compact(), r.compact_array(answer), r.tags()))
        return out

    def delete_group(self, group):
        r = self.call("DeleteGroups", array([group], string))
        r.i32()
        ((_, error),) = r.array(lambda: (r.string(), r.i16()))
        return error

    def list_groups(self):
        """Returns (error, {group: protocol type})."""
        r = self.call("ListGroups", b"")
        r.i32()
        error = r.i16()
        return error, dict(r.array(lambda: (r.string(), r.string())))


Beat = collections.namedtuple("Beat", "error message member epoch interval_ms assignment")


def fetch_body(topic, partition, offset, wait_ms, max_bytes):
    head = i32(-1) + i32(wait_ms) + i32(1) + i32(max_bytes) + i8(0)
    return head + i32(1) + string(topic) + i32(1) + i32(partition) + i64(offset) + i32(max_bytes)


def commit_errors(r):
    r.i32()
    out = {}
    for _ in range(r.i32()):
        r.string()
        for _ in range(r.i32()):
            partition, error = r.i32(), r.i16()
            out[partition] = error
    return out
