"""Bodies of every request in every version, with the places of their lengths and counts, for tests/scripts/hostile.

The layouts come from the message schemas in the kafka-clients jar, read when a script runs: an independent second
opinion on the server's own tables.
"""

import os
import shutil
import struct
import subprocess

import shapes

VERSION = "4.4.0"


def jar():
    """The kafka-clients jar: from the local Maven repository, fetched by mvn if need be. None where there is no mvn."""
    path = os.path.expanduser("~/.m2/repository/org/apache/kafka/kafka-clients/%s/kafka-clients-%s.jar" % (VERSION, VERSION))
    if not os.path.exists(path) and shutil.which("mvn"):
        artifact = "org.apache.kafka:kafka-clients:%s" % VERSION
        subprocess.run(
            ["mvn", "-q", "-B", "dependency:get", "-Dartifact=" + artifact, "-Dtransitive=false"],
            stdin=subprocess.DEVNULL,
            check=False,
        )
    return path if os.path.exists(path) else None


def schemas(jar_path):
    """API key -> request schema, of those in the server's table."""
    found = (shapes.load(jar_path, name + "Request") for name in shapes.APIS)
    return {s["apiKey"]: s for s in found}


def flexible(schema, version):
    return shapes.within(version, schema.get("flexibleVersions"))


def served(schema, version):
    """Whether the schemas know this version; Produce 0 to 2 is only advertised."""
    return shapes.within(version, schema["validVersions"])


def uvarint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


class Body:
    """A well-formed body with one element in every array; `lengths` has (offset, bytes, kind) of every length in it.

    kind: "i16" and "i32" for classic lengths, "compact" for a varint of length + 1, "tags" for a plain varint.
    """

    def __init__(self, schema, version, long=1):
        """`long` is the value of every int64: -1 asks ListOffsets for the latest."""
        self.version, self.long = version, long
        self.flexible = flexible(schema, version)
        self.structs = {s["name"]: s["fields"] for s in schema.get("commonStructs", [])}
        self.raw, self.lengths = bytearray(), []
        self._struct(schema["fields"])

    def _length(self, n, kind):
        encoded = {"i16": lambda: struct.pack(">h", n), "i32": lambda: struct.pack(">i", n), "compact": lambda: uvarint(n + 1), "tags": lambda: uvarint(n)}[kind]()
        self.lengths.append((len(self.raw), len(encoded), kind))
        self.raw += encoded

    def _struct(self, fields):
        tagged = []
        for f in fields:
            if not shapes.within(self.version, f["versions"]):
                continue
            if "tag" in f and self.flexible and shapes.within(self.version, f["taggedVersions"]):
                tagged.append(f)
            else:
                self._value(f["type"], f)
        if self.flexible:
            self._length(len(tagged), "tags")
            for f in sorted(tagged, key=lambda f: f["tag"]):
                self.raw += uvarint(f["tag"])
                inner = Body.__new__(Body)
                inner.version, inner.flexible, inner.structs, inner.long = self.version, True, self.structs, self.long
                inner.raw, inner.lengths = bytearray(), []
                inner._value(f["type"], f)
                self._length(len(inner.raw), "tags")
                self.lengths += [(at + len(self.raw), n, kind) for at, n, kind in inner.lengths]
                self.raw += inner.raw

    def _value(self, kind, field):
        if kind in shapes.FIXED:
            n = shapes.FIXED[kind]
            value = self.long if kind == "int64" else 0 if kind == "bool" else 1
            self.raw += b"\x07" * 16 if kind == "uuid" else value.to_bytes(n, "big", signed=True)
        elif kind in ("string", "bytes", "records"):
            text = b"hostile"
            self._length(len(text), "compact" if self.flexible else "i16" if kind == "string" else "i32")
            self.raw += text
        elif kind.startswith("[]"):
            self._length(1, "compact" if self.flexible else "i32")
            self._value(kind[2:], field)
        else:
            if shapes.within(self.version, field.get("nullableVersions")) and not field["type"].startswith("[]"):
                self.raw += b"\1"
            self._struct(field.get("fields") or self.structs[kind])


def lies(body):
    """Bodies that differ from `body` in one length: too large, negative, overlong or just beyond the end."""
    for at, size, kind in body.lengths:
        left = len(body.raw) - at - size
        if kind == "i16":
            values = [struct.pack(">h", v) for v in (32_767, left + 1, -1, -2, -32_768)]
        elif kind == "i32":
            values = [struct.pack(">i", v) for v in (2**31 - 1, 2**31 - 5, 50_000_000, left + 1, -1, -2, -(2**31))]
        else:
            values = [uvarint(v) for v in (0, 2**31 - 1, 2**31, 2**32 - 1, 50_000_000, 32_769, left + 2, 2**63)]
            values += [b"\xff" * 5, b"\xff" * 10, b"\x80" * 9 + b"\x01", b"\x80\x00"]
        for value in values:
            yield bytes(body.raw[:at]) + value + bytes(body.raw[at + size :])


def cuts(body, step=1):
    """The body cut short."""
    for n in range(0, len(body.raw), step):
        yield bytes(body.raw[:n])


def small_bodies():
    """Bodies of 4, 5 and 15 bytes in which some reading of them finds a huge count."""
    huge, varint = struct.pack(">i", 2**31 - 1), uvarint(2**32 - 1)
    for length in (4, 5, 15):
        yield b"\xff" * length
        yield b"\x7f" * length
        yield b"\0" * length
        for at in range(0, length - 3):
            yield (b"\0" * at + huge + b"\0" * length)[:length]
            yield (b"\1" * at + huge + b"\1" * length)[:length]
        for at in range(0, length - 4):
            yield (b"\0" * at + varint + b"\0" * length)[:length]
            yield (b"\2" * at + varint + b"\2" * length)[:length]
