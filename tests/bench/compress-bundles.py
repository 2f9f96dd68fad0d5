#!/usr/bin/python3
"""Makes a fat library with compressed offload bundles of one with plain bundles.

    compress-bundles.py FROM TO

Each bundle of .hip_fatbin becomes what `clang-offload-bundler --compress` would make of it (CCOB version 3,
zstd level 3 with long-distance matching), at the place where it was: so no wrapper changes, and the rest of
its place is zeros, which is padding. Real libraries with compressed bundles that anybody may download are
small; this gives a large one of real code. Needs python3-zstandard.
"""

import hashlib
import struct
import sys

import zstandard

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


def section(elf, wanted):
    """Offset and size of the section of this name."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    strings = headers[names][4]
    for name, _, _, _, offset, length in headers:
        start = strings + name
        if elf[start : elf.index(b"\0", start)] == wanted:
            return offset, length
    sys.exit(f"no section {wanted.decode()}")


def end_of(elf, start):
    """Where the plain bundle at `start` ends."""
    (count,) = struct.unpack_from("<Q", elf, start + 24)
    at, end = start + 32, start + 32
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", elf, at)
        at += 24 + length
        end = max(end, at, start + offset + size if size else 0)
    return end


def main(source, target):
    with open(source, "rb") as file:
        elf = bytearray(file.read())
    parameters = zstandard.ZstdCompressionParameters.from_level(3, enable_ldm=True, window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    offset, length = section(elf, b".hip_fatbin")
    at, count, before, after = offset, 0, 0, 0
    while at < offset + length:
        if not elf.startswith(MAGIC, at):
            at += 4096
            continue
        end = end_of(elf, at)
        plain = bytes(elf[at:end])
        stream = compressor.compress(plain)
        packed = struct.pack("<4sHHQQ", b"CCOB", 3, 1, 32 + len(stream), len(plain))
        packed += hashlib.md5(plain).digest()[:8] + stream
        if len(packed) < len(plain):
            elf[at:end] = packed.ljust(len(plain), b"\0")
            before, after, count = before + len(plain), after + len(packed), count + 1
        at = (end + 4095) // 4096 * 4096
    with open(target, "wb") as file:
        file.write(elf)
    print(f"{count} bundles compressed, {before / 1e6:.0f} MB to {after / 1e6:.0f} MB", file=sys.stderr)


if len(sys.argv) != 3:
    sys.exit(__doc__)
main(sys.argv[1], sys.argv[2])
