"""Record batches (Kafka's format 2), made and read by hand."""

import struct
import time
import zlib

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


def _table():
    out = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        out.append(n)
    return out


TABLE = _table()


def crc32c(raw):
    crc = 0xFFFFFFFF
    for byte in raw:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def varint(n):
    n = n << 1 ^ n >> 63
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def record(index, value):
    body = b"\0" + varint(0) + varint(index) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def records(values):
    return b"".join(record(i, v) for i, v in enumerate(values))


def batch(payload, count, codec=NONE, ahead_ms=0):
    """A batch of `count` records whose bytes, compressed by `codec` already, are `payload`.

    `ahead_ms`: how much later than its first record the batch claims its newest to be.
    """
    now_ms = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", codec, count - 1, now_ms, now_ms + ahead_ms, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", 0, 9 + len(tail), 0, 2, crc32c(tail)) + tail


def plain(values):
    return batch(records(values), len(values))


def gzipped(raw, count):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return batch(packer.compress(raw) + packer.flush(), count, GZIP)


def values(raw):
    """(offset, value) of each record of uncompressed batches; half a batch at the end is left out."""
    at = 0
    while at + 61 <= len(raw):
        base, length = struct.unpack(">qi", raw[at : at + 12])
        end = at + 12 + length
        if end > len(raw):
            return
        (count,) = struct.unpack(">i", raw[at + 57 : at + 61])
        place = at + 61
        for _ in range(count):
            size, place = _varint(raw, place)
            after = place + size
            _, place = _varint(raw, place + 1)
            delta, place = _varint(raw, place)
            key, place = _varint(raw, place)
            value, place = _varint(raw, place + max(key, 0))
            yield base + delta, raw[place : place + max(value, 0)]
            place = after
        at = end


def _varint(raw, at):
    out = shift = 0
    while True:
        byte = raw[at]
        at += 1
        out |= (byte & 0x7F) << shift
        if byte < 0x80:
            return out >> 1 ^ -(out & 1), at
        shift += 7
