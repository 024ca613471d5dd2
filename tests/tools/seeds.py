#!/usr/bin/env python3
"""Makes the seeds of the fuzz targets: `tests/tools/seeds.py fuzz/corpus`. Their layout is told in fuzz/fuzz_targets."""

import os
import re
import struct
import sys

import kafka
import messages
import shapes
from kafka import array, blob, i8, i32, i64, string

GROUP_APIS = {8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 42, 47, 68, 69}
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
    for key in sorted(GROUP_APIS & schemas.keys()):
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


def main():
    folder, here = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
    jar = messages.jar() or sys.exit("seeds: no kafka-clients jar and no mvn to fetch it")
    seeds = {"frames/" + n: raw for n, raw in [*flows(), *shapes_of(messages.schemas(jar))]}
    found = enumerate(batches(os.path.join(here, "..", "frames", "records.txt")))
    seeds |= {"records/batch-%02d" % n: raw for n, raw in found}
    for name, raw in seeds.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(raw)
    print("%d seeds" % len(seeds))


if __name__ == "__main__":
    main()
