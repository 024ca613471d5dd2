#!/usr/bin/env python3
"""Makes the seeds of the fuzz targets: `tests/tools/seeds.py fuzz/corpus`. Their layout is told in fuzz/src, a file for
each target."""

import gzip
import json
import os
import re
import struct
import sys

import kafka
import messages
import shapes
from kafka import array, blob, i8, i32, i64, string

APIS = {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 29, 32, 33, 35, 37, 42, 44, 46, 47, 60, 66}
APIS |= {68, 69, 74, 75}
FIRST, SECOND = "0", "1"  # the coordinator's first and second member id
# what a step byte does to the clock
NOW, SOON, THREE_SECONDS, TEN_SECONDS, MINUTE = 0, 2, 4, 5, 6


def steps(*frames):
    """Steps of (clock, frame) as the target reads them."""
    return b"".join(bytes([clock]) + struct.pack(">H", len(f)) + f for clock, f in frames)


def ask(api, body):
    return kafka.frame(api, 1, body)[4:]


def join(member, group="g", instance=None, session_ms=10_000, metadata=b"m"):
    protocols = array([("range", metadata)], lambda p: string(p[0]) + blob(p[1]))
    head = string(group) + i32(session_ms) + i32(20_000) + string(member) + string(instance)
    return ask("JoinGroup", head + string("consumer") + protocols)


def sync(member, generation, instance=None, plan=()):
    pairs = array(plan, lambda p: string(p) + blob(b"a"))
    return ask("SyncGroup", string("g") + i32(generation) + string(member) + string(instance) + pairs)


def beat(member, generation, instance=None):
    return ask("Heartbeat", string("g") + i32(generation) + string(member) + string(instance))


def commit(member, generation, topic="b"):
    part = i32(1) + i32(0) + i64(5) + i32(-1) + string("note")
    return ask("OffsetCommit", string("g") + i32(generation) + string(member) + string(None) + i32(1) + string(topic) + part)


def leave(member, instance=None):
    return ask("LeaveGroup", string("g") + array([member], lambda m: string(m) + string(instance)))


def fetch():
    return ask("OffsetFetch", string("g") + i32(-1))


def delete():
    return ask("DeleteGroups", array(["g"], string))


def flows():
    yield "alone", steps(
        (NOW, join("")), (NOW, join(FIRST)), (NOW, sync(FIRST, 1, plan=[FIRST])), (SOON, beat(FIRST, 1)),
        (NOW, commit(FIRST, 1)), (NOW, fetch()), (NOW, leave(FIRST)), (NOW, delete()), (NOW, fetch()),
    )  # fmt: skip
    yield "two", steps(
        (NOW, join("")), (NOW, join("")), (NOW, join(FIRST)), (NOW, join(SECOND)), (NOW, join(FIRST)),
        (NOW, sync(SECOND, 2)), (NOW, sync(FIRST, 2, plan=[FIRST])), (SOON, beat(FIRST, 2)), (NOW, join(SECOND, metadata=b"n")),
        (NOW, join(FIRST)), (NOW, leave(SECOND)), (TEN_SECONDS, beat(FIRST, 3)), (MINUTE, fetch()),
    )  # fmt: skip
    yield "static", steps(
        (NOW, join("", instance="i")), (NOW, sync(FIRST, 1, "i")), (THREE_SECONDS, beat(FIRST, 1, "i")),
        (NOW, join("", instance="i")), (NOW, beat(FIRST, 1, "i")), (NOW, sync(SECOND, 1, "i")), (NOW, leave("", "i")),
    )  # fmt: skip
    yield "assign-mode", steps((NOW, commit("", -1)), (NOW, fetch()), (NOW, commit("", -1, "a")), (7, fetch()), (NOW, delete()))
    describe = ask("DescribeGroups", array(["g", "h"], string) + i8(1))
    yield "looks", steps((NOW, join("")), (NOW, describe), (NOW, ask("ListGroups", b"")), (THREE_SECONDS, describe))


def shapes_of(schemas):
    for key in sorted(APIS & schemas.keys()):
        schema = schemas[key]
        low, high = shapes.span(schema["validVersions"])
        for version in sorted({low, high}):
            body = messages.Body(schema, version)
            head = struct.pack(">hhi", key, version, 1) + string("c") + (b"\0" if messages.flexible(schema, version) else b"")
            yield "%s-v%d" % (schema["name"].removesuffix("Request"), version), steps((NOW, head + bytes(body.raw)))


def batches(path):
    """The record batches among the recorded bytes: format 2 in the right place."""
    with open(path) as f:
        for text in re.findall(r"\b[0-9a-f]{130,}\b", f.read()):
            raw = bytes.fromhex(text[: len(text) // 2 * 2])
            if raw[16] == 2:
                yield raw


# ---------------------------------------------------------------- group: a byte of settings, then operations
NOBODY, STRANGER, OWN, NO_INSTANCE, STATIC = 0xF0, 0xFF, 0, 0, 0xA0


def operation(kind, group, *arguments):
    return bytes([group << 4 | kind, *arguments])


def g_join(group, member, instance=NO_INSTANCE, flags=0x01):
    return operation(0, group, flags, member, 1, 0x03, 0, instance)


def g_sync(group, member, plan=(), instance=NO_INSTANCE):
    pairs = [byte for other in plan for byte in (0, 0x0F, other)]
    return operation(9 if group >= 2 else 2, group, len(plan), member, OWN, instance, *pairs)


def g_modern(group, name, epoch=OWN, owned=0, topics=(0x03,)):
    return operation(15, group, 0x80, name, epoch, owned, NO_INSTANCE, *topics)


def g_commit(group, member):
    return operation(5, group, 0x09, member, 0, 0x05, OWN, NO_INSTANCE)


def group_histories():
    alone = [g_join(0, NOBODY), g_sync(0, 0, [0]), g_commit(0, 0), operation(6, 0, 1, 0, 0, OWN), operation(3, 0, 0, OWN, 0)]
    yield "classic", b"\0" + b"".join(alone + [operation(4, 0, 1, 0, 0), operation(10, 0, 7), operation(8, 0, 1)])
    two = [g_join(0, NOBODY), g_join(0, NOBODY), g_join(0, 0), g_sync(0, 0, [0, 1]), g_sync(0, 1), operation(10, 0, 5)]
    yield "two", b"\0" + b"".join(two + [operation(14, 0, 0), operation(3, 0, 0, OWN, 0), operation(10, 0, 6)])
    yield "static", b"\0" + b"".join(g_join(0, NOBODY, STATIC) + g_sync(0, 0, [0]) for _ in range(2))
    beats = [g_modern(2, n, e, o, t) for n, e, o, t in [(0, 0, 0, (3,)), (1, 0, 0, (3,)), (0, 0, 0, ()), (1, 0, 0, ()), (0, 0, 0, ())]]
    yield "modern", b"\0" + b"".join(beats + [operation(12, 0, 0x05), operation(10, 2, 2), *beats[2:], operation(14, 0, 0), *beats[2:]])
    mixed = [g_join(3, NOBODY), g_sync(3, 0, [0]), g_modern(3, 1), operation(3, 3, 0, OWN, 0), g_join(3, 0), g_sync(3, 0)]
    yield "mixed", b"\0" + b"".join(mixed + [g_modern(3, 1, OWN, 0, ()), g_modern(3, 1, 0xC0, 0, ()), operation(10, 3, 6)])
    yield "topics", b"\x40" + b"".join([*beats, *[operation(12, 0, n) for n in (0x00, 0x10, 0x34, 0x05)], operation(10, 2, 3), *beats])


# ---------------------------------------------------------------- batch: operations; the topic stands in the two highest bits
def record(value):
    body = b"\0\0\0\x01" + bytes([2 * len(value)]) + value + b"\0"
    return bytes([2 * len(body)]) + body


def packed(codec):
    """One record of 40 zeros, as that codec packs it without a library."""
    plain = record(bytes(40))
    if codec == 1:
        return gzip.compress(plain, mtime=0)
    if codec == 2:  # a length and one literal
        return bytes([len(plain), (len(plain) - 1) << 2]) + plain
    if codec == 3:  # a frame without checksums, one block that is not compressed; the header's own checksum is of 60 40
        return bytes.fromhex("04224d18604082") + struct.pack("<I", len(plain) | 1 << 31) + plain + bytes(4)
    if codec == 4:  # a single segment of one raw block
        return bytes.fromhex("28b52ffd20") + bytes([len(plain)]) + (len(plain) << 3 | 1).to_bytes(3, "little") + plain
    return plain


def b_compressed(codec):
    body = packed(codec)
    return bytes([0, 0xC0, 0, 0]) + struct.pack("<H", 1) + bytes([codec]) + struct.pack("<H", len(body)) + body + b"\0"


def batch_histories():
    plain = bytes([0, 0x09, 2, 4, 0, 0])
    again = bytes([0, 0x00, 0, 0xA0, 0, 0])
    looks = bytes([7, 0, 6, 9, 0xC0, 9, 0x20, 9, 0])
    yield "plain", plain + plain + looks + bytes([11, 1]) + looks + bytes([15]) + looks
    yield "producer", again + again + bytes([0, 0x00, 0, 0xA0, 1, 0]) + looks
    for topic in (1, 2, 3):
        one = bytes([topic << 6 | 0, 0x09, 2, 4, 0, 0])
        time = bytes([12 | 0x20])
        yield "topic-%d" % topic, (one + time) * 5 + bytes([topic << 6 | n for n in looks]) + bytes([12 | 0x30, 14, 15])
    for codec in range(5):
        yield "codec-%d" % codec, b_compressed(codec) + looks


# ---------------------------------------------------------------- segments: files of a data folder; checksums are made right
META, SEGMENT, SNAPSHOT, SPARE, JOURNAL, LOG, INDEX, SECOND_LOG = 0, 1, 4, 7, 8, 9, 10, 13


def file(name, raw, flags=0):
    return bytes([name, flags]) + struct.pack(">H", len(raw)) + raw


def padded(raw):
    return raw + bytes(-len(raw) % 8)


def frame(lsn, partition, payload, kind=1, floor=1):
    head = struct.pack("<IIQQHB5x", 0, len(payload), lsn, floor, partition, kind)
    return padded(head + payload)


def batch(base, count=1):
    records = b"".join(record(b"v") for _ in range(count))
    head = struct.pack(">qiibihiqqqhii", base, 49 + len(records), 0, 2, 0, 0, count - 1, 1000, 1000, -1, -1, -1, count)
    return head + records


def folders(group_batches):
    meta = file(META, b"format=1\npartitions=3\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n")
    payload = group_batches[0]
    frames = [frame(1, 1, payload), frame(2, 0, payload), frame(3, 1, b"")]
    segment = bytes(64) + b"".join(frames)
    seal = frame(4, 0, b"", kind=2, floor=4)
    snapshot = bytes(64) + frame(0, 1, payload, floor=0) + frame(1, 1, b"", kind=3, floor=0)
    yield "empty", b""
    yield "log", meta + file(SEGMENT, segment + seal, 2)
    yield "torn", meta + file(SEGMENT, segment[:-9], 3)
    yield "snapshot", meta + file(SEGMENT, segment, 2) + file(SNAPSHOT, snapshot) + file(SPARE, bytes(5000))
    topic = {"id": "00000000-0000-4000-8000-000000000001", "name": "t", "partitions": 2}
    offsets = {"id": "00000000-0000-4000-8000-000000000002", "name": "__consumer_offsets", "partitions": 3, "internal": True}
    entries = [{"format": {"version": 1}}, {"producer_ids": {"next": 1000}}, {"topic": offsets}, {"topic": topic}]
    more = [{"start": {"id": topic["id"], "partition": 0, "offset": 1}}, {"topic_configs": {"id": topic["id"], "configs": {}}}]
    lines = ["".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in some) for some in (entries, entries + more)]
    log = batch(0) + batch(1, 2)
    index = bytes(16) + struct.pack("<QqqqqII", len(log), 3, 1000, 1000, 1000, 1, 0) + struct.pack("<qQq", 0, 0, -1)
    yield "topics", meta + file(JOURNAL, lines[0].encode()) + file(LOG, log) + file(SECOND_LOG, batch(0))
    yield "index", meta + file(JOURNAL, lines[1].encode()) + file(LOG, log + batch(3)[:-2], 1) + file(INDEX, index)


# ---------------------------------------------------------------- dialogue: operations of two bytes and what they need
def dialogues():
    first, second = 0, 1
    join = lambda on, member: bytes([0, on, member, 0, 4])  # noqa: E731
    sync = lambda on, member: bytes([3, on, member, 0, 4, 1])  # noqa: E731
    beat = lambda on, member: bytes([5, on, member, 0, 3])  # noqa: E731
    commit = bytes([7, 0, first, 0, 9, 5])
    offsets = bytes([8, 0, 7])
    tick = bytes([15, 1])
    yield "classic", join(0, NOBODY) + sync(0, first) + commit + offsets + beat(0, first) + bytes([6, 0, first, 4]) + tick
    yield "two", join(0, NOBODY) + join(1, NOBODY) + join(0, first) + sync(0, first) + sync(1, second) + beat(1, second) + tick
    modern = b"".join(bytes([9, 4, name, 0, 1]) for name in (0, 1, 0, 1, 0))
    yield "modern", modern + bytes([14, 0, 1]) + tick + modern
    yield "mixed", join(0 | 8, NOBODY) + sync(0 | 8, first) + bytes([9, 8, 1, 0, 1]) + beat(0 | 8, first) + tick
    yield "data", bytes([12, 0, 3, 6, 13, 0, 8, 12, 0x20, 9, 10, 13, 0x20, 9]) + b"".join(bytes([11, 0, n, 1]) for n in range(10))


def main():
    folder, here = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
    jar = messages.jar() or sys.exit("seeds: no kafka-clients jar and no mvn to fetch it")
    found = list(batches(os.path.join(here, "..", "frames", "records.txt")))
    seeds = {"records/batch-%02d" % n: raw for n, raw in enumerate(found)}
    all_seeds = {
        "frame": [*flows(), *shapes_of(messages.schemas(jar))],
        "group": group_histories(),
        "batch": batch_histories(),
        "segments": folders(found),
        "dialogue": dialogues(),
    }
    seeds |= {"%s/%s" % (target, name): raw for target, some in all_seeds.items() for name, raw in some}
    for name, raw in seeds.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(raw)
    print("%d seeds" % len(seeds))


if __name__ == "__main__":
    main()
