"""Requests and responses of any API in any version, as dictionaries, from the message schemas in the kafka-clients jar.

An encoder and decoder of its own, so that it shares nothing with the server's. Field names are those of the schemas;
a field that is absent has its default. `None` is written as null whether the schema allows it or not.
"""

import struct
import uuid

import shapes
from kafka import uvarint

INTS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}
ZERO_ID = b"\0" * 16


class Malformed(Exception):
    """A response that is not as its schema says."""


class Reader:
    def __init__(self, raw, at=0):
        self.raw, self.at = raw, at

    def take(self, n):
        if n < 0 or self.at + n > len(self.raw):
            raise Malformed("ends inside a field at %d of %d" % (self.at, len(self.raw)))
        self.at += n
        return self.raw[self.at - n : self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def uvarint(self):
        out = shift = 0
        while True:
            (b,) = self.take(1)
            out |= (b & 0x7F) << shift
            if b < 0x80:
                return out
            shift += 7

    def tags(self):
        """Skips the tagged fields of a header."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())


def default_of(field):
    kind, given = field["type"], field.get("default")
    if given == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind in INTS:
        return int(str(given), 0) if given is not None else 0
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "string":
        return given or ""
    if kind == "uuid":
        return ZERO_ID
    if kind in ("bytes", "records"):
        return b""
    return {}


class Message:
    """One schema in one version: `write(dict) -> bytes`, `read(Reader) -> dict`."""

    def __init__(self, schema, version):
        self.version = version
        self.flexible = shapes.within(version, schema.get("flexibleVersions"))
        self.structs = {s["name"]: s["fields"] for s in schema.get("commonStructs", [])}
        self.fields = self._fields(schema["fields"])

    def _fields(self, fields):
        plain, tagged = [], {}
        for f in fields:
            if not shapes.within(self.version, f["versions"]):
                continue
            nullable = shapes.within(self.version, f.get("nullableVersions"))
            one = (f["name"], default_of(f), *self._type(f["type"], f, nullable))
            if "tag" in f and self.flexible and shapes.within(self.version, f["taggedVersions"]):
                tagged[f["tag"]] = one
            else:
                plain.append(one)
        return plain, tagged

    def _length(self, form):
        """(write, read) of a length, -1 being null."""
        if self.flexible:
            return (lambda n: uvarint(n + 1)), (lambda r: r.uvarint() - 1)
        return (lambda n: struct.pack(form, n)), (lambda r: r.number(form))

    def _type(self, kind, field, nullable=False):
        if kind in INTS:
            form = INTS[kind]
            return (lambda v: struct.pack(form, v)), (lambda r: r.number(form))
        if kind == "bool":
            return (lambda v: b"\1" if v else b"\0"), (lambda r: r.take(1) != b"\0")
        if kind == "uuid":
            return (lambda v: v), (lambda r: bytes(r.take(16)))
        if kind == "string":
            put, get = self._length(">h")

            def write(v):
                if v is None:
                    return put(-1)
                raw = v.encode()
                return put(len(raw)) + raw

            def read(r):
                n = get(r)
                return None if n < 0 else r.take(n).decode(errors="replace")

            return write, read
        if kind in ("bytes", "records"):
            put, get = self._length(">i")

            def read_bytes(r):
                n = get(r)
                return None if n < 0 else bytes(r.take(n))

            return (lambda v: put(-1) if v is None else put(len(v)) + v), read_bytes
        if kind.startswith("[]"):
            put, get = self._length(">i")
            write_one, read_one = self._type(kind[2:], field)

            def read_all(r):
                n = get(r)
                return None if n < 0 else [read_one(r) for _ in range(n)]

            return (lambda v: put(-1) if v is None else put(len(v)) + b"".join(map(write_one, v))), read_all
        fields = self._fields(field.get("fields") or self.structs[kind])
        if not nullable:
            return (lambda v: self._write(fields, v)), (lambda r: self._read(fields, r))

        def write_or_null(v):
            return b"\xff" if v is None else b"\1" + self._write(fields, v)

        return write_or_null, (lambda r: self._read(fields, r) if r.number(">b") >= 0 else None)

    def _write(self, fields, value):
        plain, tagged = fields
        out = [write(value.get(name, default)) for name, default, write, _ in plain]
        if self.flexible:
            tags = []
            for tag, (name, default, write, _) in sorted(tagged.items()):
                if value.get(name, default) != default:
                    raw = write(value[name])
                    tags.append(uvarint(tag) + uvarint(len(raw)) + raw)
            out.append(uvarint(len(tags)) + b"".join(tags))
        return b"".join(out)

    def _read(self, fields, r):
        plain, tagged = fields
        out = {name: read(r) for name, _, _, read in plain}
        if self.flexible:
            out.update((name, default) for name, default, _, _ in tagged.values())
            for _ in range(r.uvarint()):
                tag, raw = r.uvarint(), r.take(r.uvarint())
                if tag in tagged:
                    name, _, _, read = tagged[tag]
                    out[name] = read(Reader(raw))
        return out

    def write(self, value):
        return self._write(self.fields, value)

    def read(self, reader):
        return self._read(self.fields, reader)


class Codec:
    """All messages of a jar, made when they are first asked for."""

    def __init__(self, jar):
        self.jar, self.schemas, self.messages = jar, {}, {}

    def schema(self, name):
        if name not in self.schemas:
            self.schemas[name] = shapes.load(self.jar, name)
        return self.schemas[name]

    def _message(self, name, version):
        if (name, version) not in self.messages:
            self.messages[name, version] = Message(self.schema(name), version)
        return self.messages[name, version]

    def frame(self, api, version, correlation, client_id, body):
        """A whole request frame, length included."""
        schema = self.schema(api + "Request")
        message = self._message(api + "Request", version)
        client = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
        head = struct.pack(">hhi", schema["apiKey"], version, correlation) + client
        if message.flexible:
            head += b"\0"
        raw = head + message.write(body)
        return struct.pack(">i", len(raw)) + raw

    def request(self, api, version, raw):
        """The body of a request frame without its length; all of it must have been read."""
        message = self._message(api + "Request", version)
        r = Reader(raw, 8)
        r.take(max(r.number(">h"), 0))
        if message.flexible:
            r.tags()
        body = message.read(r)
        if r.at != len(raw):
            raise Malformed("%d bytes follow the body" % (len(raw) - r.at))
        return body

    def response(self, api, version, raw):
        """(correlation id, body) of a response frame without its length; all of it must have been read."""
        message = self._message(api + "Response", version)
        r = Reader(raw)
        correlation = r.number(">i")
        if message.flexible and api != "ApiVersions":
            r.tags()
        body = message.read(r)
        if r.at != len(raw):
            raise Malformed("%d bytes follow the body" % (len(raw) - r.at))
        return correlation, body


# The two messages inside JoinGroup and SyncGroup, for groups of type "consumer".


def subscription(topics, owned=(), version=1):
    """topics: names; owned: {name: partitions}."""
    out = struct.pack(">h", version) + _strings(topics) + struct.pack(">i", -1)
    if version >= 1:
        out += _partitions(dict(owned))
    if version >= 2:
        out += struct.pack(">i", -1)
    if version >= 3:
        out += struct.pack(">h", -1)
    return out


def assignment(partitions, version=0):
    return struct.pack(">h", version) + _partitions(partitions) + struct.pack(">i", -1)


def read_assignment(raw):
    """{"version", "topics", "user"} of an embedded assignment, or None if it is not one."""
    r = Reader(raw)
    try:
        version = r.number(">h")
        topics = {}
        for _ in range(r.number(">i")):
            name = r.take(r.number(">h")).decode()
            topics[name] = sorted(r.number(">i") for _ in range(r.number(">i")))
        n = r.number(">i")
        user = r.take(n) if n >= 0 else None
    except (Malformed, UnicodeDecodeError):
        return None
    if not 0 <= version <= 3 or r.at != len(raw):
        return None
    return {"version": version, "topics": topics, "user": user}


def _strings(items):
    out = struct.pack(">i", len(items))
    for s in items:
        out += struct.pack(">h", len(s)) + s.encode()
    return out


def _partitions(partitions):
    out = struct.pack(">i", len(partitions))
    for name, numbers in sorted(partitions.items()):
        out += struct.pack(">h", len(name)) + name.encode()
        out += struct.pack(">i%di" % len(numbers), len(numbers), *numbers)
    return out


def random_id(rng):
    return uuid.UUID(int=rng.getrandbits(128), version=4).bytes
