#!/usr/bin/env python3
"""Make src/wire/shapes.rs: the flat programs that wire/guard.rs walks.

    mvn dependency:copy -Dartifact=org.apache.kafka:kafka-clients:4.4.0 -DoutputDirectory=/tmp/jars
    tests/tools/shapes.py /tmp/jars/kafka-clients-4.4.0.jar > src/wire/shapes.rs
    rustfmt src/wire/shapes.rs

The argument is the jar or a folder with its common/message/*.json. The layouts are facts taken from
those schemas; neither the schemas nor the jar belong into the repository.
"""

import json
import os
import re
import sys
import zipfile

# Requests of the table in src/wire/api.rs, in order of their keys.
APIS = """Produce Fetch ListOffsets Metadata OffsetCommit OffsetFetch FindCoordinator JoinGroup
Heartbeat LeaveGroup SyncGroup DescribeGroups ListGroups ApiVersions CreateTopics DeleteTopics
DeleteRecords InitProducerId OffsetForLeaderEpoch DescribeAcls DescribeConfigs AlterConfigs
DescribeLogDirs CreatePartitions DeleteGroups IncrementalAlterConfigs ListPartitionReassignments
OffsetDelete DescribeCluster ListTransactions ConsumerGroupHeartbeat ConsumerGroupDescribe
ListConfigResources DescribeTopicPartitions""".split()

FIXED = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
         "int64": 8, "float64": 8, "uuid": 16}


def load(source, name):
    path = f"common/message/{name}.json"
    if os.path.isdir(source):
        for folder in (source, os.path.join(source, "common/message")):
            if os.path.exists(os.path.join(folder, name + ".json")):
                text = open(os.path.join(folder, name + ".json"), encoding="utf-8").read()
                break
        else:
            sys.exit(f"no {name}.json in {source}")
    else:
        text = zipfile.ZipFile(source).read(path).decode()
    # The schemas carry // comments; a string never holds one.
    return json.loads(re.sub(r"(?m)(^|[\s,{\[])//.*$", r"\1", text))


def span(text):
    """'none', '3', '3+' or '3-5' as an inclusive pair."""
    if text is None or text == "none":
        return (1, 0)
    if text.endswith("+"):
        return (int(text[:-1]), 32767)
    low, _, high = text.partition("-")
    return (int(low), int(high or low))


def within(version, text):
    low, high = span(text)
    return low <= version <= high


class Program:
    def __init__(self, schema, version):
        self.version = version
        self.flexible = within(version, schema.get("flexibleVersions"))
        self.structs = {s["name"]: s["fields"] for s in schema.get("commonStructs", [])}
        self.ops, self.smallest = self.struct(schema["fields"])

    def struct(self, fields):
        """Ops of a struct and the fewest bytes it can take."""
        ops, smallest, tagged = [], 0, []
        for field in fields:
            if "tag" in field:
                tagged.append(field)
                if self.flexible and within(self.version, field["taggedVersions"]):
                    continue
            if not within(self.version, field["versions"]):
                continue
            more, least = self.field(field)
            ops += more
            smallest += least
        if self.flexible:
            tags = []
            for field in tagged:
                known = within(self.version, field["taggedVersions"]) and within(self.version, field["versions"])
                body = self.field(field)[0] if known else []
                if known:
                    tags += [("Tag", field["tag"], len(merge(body)))] + merge(body)
                else:
                    tags += [("NoTag", field["tag"])]
            ops += [("Tags", len(tagged) and len(tags))] + tags
            smallest += 1
        return merge(ops), smallest

    def field(self, field):
        nullable = within(self.version, field.get("nullableVersions"))
        return self.of(field["type"], nullable, field)

    def of(self, kind, nullable, field):
        n = "N" if nullable else ""
        c = "C" if self.flexible else ""
        if kind in FIXED:
            return [("Fix", FIXED[kind])], FIXED[kind]
        if kind == "string":
            return [(f"{c}Str{n}",)], 1 if c else 2
        if kind in ("bytes", "records"):
            return [(f"{c}Bytes{n}",)], 1 if c else 4
        if kind.startswith("[]"):
            if kind[2:] in FIXED:
                assert not nullable, "the guard has no op for this yet"
                return [(f"{c}Fixes", FIXED[kind[2:]])], 1 if c else 4
            body, least = self.of(kind[2:], False, field)
            body = merge(body)
            return [(f"{c}Arr{n}", least, len(body))] + body, 1 if c else 4
        body, least = self.struct(field.get("fields") or self.structs[kind])
        if nullable:
            return [("Opt", len(body))] + body, 1
        return body, least


def merge(ops):
    """Neighbouring fixed fields become one step."""
    out, skip = [], 0
    for i, op in enumerate(ops):
        if skip == 0 and out and op[0] == "Fix" and out[-1][0] == "Fix" and not held(out):
            out[-1] = ("Fix", out[-1][1] + op[1])
        else:
            out.append(op)
    return out


def held(ops):
    """Whether the last op lies inside the body of an op before it (then it must not grow)."""
    for i, op in enumerate(ops):
        length = op[2] if op[0] in ("Arr", "ArrN", "CArr", "CArrN", "Tag") else op[1] if op[0] in ("Opt", "Tags") else 0
        if i < len(ops) - 1 <= i + length:
            return True
    return False


def rust(ops):
    return ", ".join(op[0] + (f"({', '.join(map(str, op[1:]))})" if len(op) > 1 else "") for op in ops)


def main():
    source = sys.argv[1]
    print("//! The shape of every request body, version by version, as flat programs for the guard.")
    print("//!")
    print("//! Made by `tests/tools/shapes.py` from the message schemas in the kafka-clients 4.4.0 jar and not")
    print("//! edited by hand. The layouts are facts taken from those schemas.")
    print()
    print("use super::guard::{Op::*, Shape};")
    for name in APIS:
        schema = load(source, name + "Request")
        const = re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
        low, high = span(schema["validVersions"])
        print(f"\n/// {name}: versions {low} to {high}.")
        print(f"pub(super) const {const}: Shape = &[")
        last = None
        for version in range(low, high + 1):
            ops = Program(schema, version).ops
            if ops != last:
                print(f"({version}, &[{rust(ops)}]),")
            last = ops
        print("];")


if __name__ == "__main__":
    main()
