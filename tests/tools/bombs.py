"""Small bytes that unfold into many: compressed records, made by hand so that no library is needed."""

import struct
import zlib

import batches
from batches import varint

AHEAD_MS = 60_000  # a question for a time before that opens the batch to its end


def _xxh32(raw):
    """xxHash32 of less than 16 bytes, seed 0: the checksum in the header of an LZ4 frame."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    h = (p5 + len(raw)) & mask
    at = 0
    while at + 4 <= len(raw):
        h = (h + int.from_bytes(raw[at : at + 4], "little") * p3) & mask
        h = (((h << 17) | (h >> 15)) & mask) * p4 & mask
        at += 4
    for byte in raw[at:]:
        h = (h + byte * p5) & mask
        h = (((h << 11) | (h >> 21)) & mask) * p1 & mask
    h = (h ^ h >> 15) * p2 & mask
    h = (h ^ h >> 13) * p3 & mask
    return h ^ h >> 16


def head(size):
    """The beginning of one record whose value has `size` bytes."""
    rest = b"\0" + varint(0) + varint(0) + varint(-1) + varint(size)
    return varint(len(rest) + size + 1) + rest


def gzip(packed_bytes):
    """About 1,000 to 1."""
    size = packed_bytes * 1000
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    out = [packer.compress(head(size))]
    block = bytes(1 << 20)
    for _ in range(size >> 20):
        out.append(packer.compress(block))
    out.append(packer.flush())
    return batches.batch(b"".join(out), 1, batches.GZIP, AHEAD_MS)


def snappy(packed_bytes):
    """One raw block, 21 to 1."""
    first = head(packed_bytes * 21)
    copies = packed_bytes // 3
    whole = len(first) + 1 + copies * 64
    out = _uvarint(whole) + bytes([(len(first)) << 2]) + first + b"\0"
    return batches.batch(out + b"\xfe\x01\x00" * copies, 1, batches.SNAPPY, AHEAD_MS)


def lz4(packed_bytes):
    """A frame of blocks of 4 MiB, 255 to 1."""
    out = [b"\x04\x22\x4d\x18"]
    descriptor = b"\x60\x70"
    out += [descriptor, bytes([_xxh32(descriptor) >> 8 & 0xFF])]
    first, block_bytes, done = head(packed_bytes * 255), 4 << 20, 0
    while done < packed_bytes:
        literals = first + b"\0" if not done else b"\0"
        more = block_bytes - len(literals) - 5 - 4 - 15  # what one match adds beyond its first 19 bytes
        token = bytes([min(len(literals), 15) << 4 | 15])
        length = b"" if len(literals) < 15 else bytes([len(literals) - 15])
        count, rest = divmod(more, 255)
        block = token + length + literals + b"\x01\x00" + b"\xff" * count + bytes([rest]) + b"\x50" + b"\0" * 5
        out += [struct.pack("<I", len(block)), block]
        done += len(block)
    out.append(struct.pack("<I", 0))
    return batches.batch(b"".join(out), 1, batches.LZ4, AHEAD_MS)


def zstd(packed_bytes):
    """Blocks of 128 KiB of one byte each, 32,768 to 1."""
    first, blocks = head(packed_bytes << 15), packed_bytes // 4
    # A frame with a window of 128 KiB; a raw block, then RLE blocks.
    out = [b"\x28\xb5\x2f\xfd", b"\x00", bytes([7 << 3])]
    out += [struct.pack("<I", len(first) << 3)[:3], first]
    repeated = struct.pack("<I", (128 << 10) << 3 | 1 << 1)[:3] + b"\0"
    out += [repeated * (blocks - 1), struct.pack("<I", (128 << 10) << 3 | 1 << 1 | 1)[:3], b"\0"]
    return batches.batch(b"".join(out), 1, batches.ZSTD, AHEAD_MS)


def _uvarint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)
