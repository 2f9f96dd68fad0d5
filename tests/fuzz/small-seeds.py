"""Small inputs of each format, written out by hand: python3 small-seeds.py SEEDS"""

import gzip
import hashlib
import io
import lzma
import pathlib
import struct
import sys
import tarfile
import zlib

import msgpack
import zstandard

SEEDS = pathlib.Path(sys.argv[1])


def seed(target, data):
    (SEEDS / target / hashlib.sha1(data).hexdigest()[:16]).write_bytes(data)


def bundle(entries, align=1):
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries))
    at = len(head) + sum(24 + len(name) for name, _ in entries)
    body = b""
    for name, content in entries:
        gap = -(at + len(body)) % align
        body += bytes(gap)
        head += struct.pack("<3Q", at + len(body), len(content), len(name)) + name.encode()
        body += content
    return head + body


def compressed(version, method, plain):
    stream = zstandard.compress(plain, 3) if method else zlib.compress(plain)
    sizes = {1: "<I", 2: "<II", 3: "<QQ"}[version]
    header = 8 + struct.calcsize(sizes) + 8
    fields = [len(plain)] if version == 1 else [header + len(stream), len(plain)]
    digest = hashlib.md5(plain).digest()[:8]
    return b"CCOB" + struct.pack("<HH", version, method) + struct.pack(sizes, *fields) + digest + stream


HOST = "host-x86_64-unknown-linux-gnu-"
DEVICE = "hipv4-amdgcn-amd-amdhsa--"
BUNDLES = [
    bundle([]),
    bundle([(HOST, b""), (DEVICE + "gfx1100", b"code")]),
    bundle([(HOST, b""), (DEVICE + "gfx90a:sramecc+:xnack-", b"a" * 40), (DEVICE + "gfx9-4-generic", b"b")]),
    bundle([("hip-amdgcn-amd-amdhsa-gfx906", b"x"), ("hipv4-amdgcn-amd-amdhsa-unknown-gfx908", b"")], 64),
]
for plain in BUNDLES:
    seed("bundle", plain)
    seed("bundle", plain + bytes(5) + plain)
    for version in 1, 2, 3:
        for method in 0, 1:
            seed("ccob", compressed(version, method, plain))
            seed("bundle", compressed(version, method, plain) + bytes(7) + plain)


def kpack(scheme, blobs, toc):
    body = b""
    more = {}
    if scheme == "none":
        more["blobs"] = []
        for blob in blobs:
            more["blobs"].append({"offset": 64 + len(body), "size": len(blob)})
            body += blob
    else:
        frames = [zstandard.ZstdCompressor(write_checksum=True).compress(blob) for blob in blobs]
        body = struct.pack("<I", len(frames))
        body += b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)
        more.update(zstd_offset=64, zstd_size=len(body))
    head = (b"KPAK" + struct.pack("<IQ", 1, 64 + len(body))).ljust(64, b"\0")
    table = {
        "format_version": 1,
        "group_name": "g",
        "gfx_arch_family": "gfx1100",
        "gfx_arches": ["gfx1100"],
        "compression_scheme": scheme,
    }
    return head + body + msgpack.packb({**table, **more, "toc": toc})


for scheme in "none", "zstd-per-kernel":
    entry = {"type": "hsaco", "ordinal": 0, "original_size": 4}
    toc = {"l#0": {"gfx1100": entry}, "l#1": {"gfx1100": {**entry, "ordinal": 1, "original_size": 300}}}
    seed("kpack", kpack(scheme, [b"code", bytes(300)], toc))
    seed("kpack", kpack(scheme, [b"code"], {"l#0": {"gfx1100": {**entry, "metadata": {"x": [1]}}}}))
    seed("kpack", kpack(scheme, [], {}))

FILE = {"file": "f", "size": 1, "kernel_count": 2}
for files in {}, {"gfx1100": FILE}, {"gfx90a": FILE, "gfx90a:xnack+": FILE}:
    seed("kpm", msgpack.packb({"format_version": 1, "component_name": "c", "prefix": "p", "kpack_files": files}))

for paths in [], ["../.kpack/l_@GFXARCH@.kpack"], ["a", "b"]:
    seed("marker", msgpack.packb({"kpack_search_paths": paths, "kernel_name": "p/l"}))
    seed("marker", msgpack.packb({"kernel_name": "", "kpack_search_paths": paths}) + bytes(9))
seed("marker", b"../.kpack:.kpack")
seed("marker", b"/a:b\n\0\0")


def tar(members, form=tarfile.GNU_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, bufsize=512) as archive:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind in (tarfile.LNKTYPE, tarfile.SYMTYPE):
                info.linkname = content
            elif kind == tarfile.REGTYPE:
                info.size = len(content)
            info.uname = info.gname = "root"
            archive.addfile(info, io.BytesIO(content) if kind == tarfile.REGTYPE else None)
    return out.getvalue().rstrip(b"\0") + bytes(1024)


CONTROL = b"Package: p\nVersion: 1\nArchitecture: all\nDepends: a (= 1),\n b\nDescription: x\n y\n"
seed("tar", b"c" + tar([("./control", tarfile.REGTYPE, CONTROL)]))
seed(
    "tar",
    b"c"
    + tar(
        [
            ("./", tarfile.DIRTYPE, b""),
            ("./control", tarfile.REGTYPE, CONTROL),
            ("./md5sums", tarfile.REGTYPE, b"900150983cd24fb0d6963f7d28e17f72  a\n"),
            ("./postinst", tarfile.REGTYPE, b"#!/bin/sh\nldconfig\n"),
        ]
    ),
)
FILES = [
    ("./", tarfile.DIRTYPE, b""),
    ("./a", tarfile.REGTYPE, b"abc"),
    ("./b", tarfile.LNKTYPE, "./a"),
    ("./c", tarfile.SYMTYPE, "../x"),
    ("./d", tarfile.CHRTYPE, b""),
    ("./e", tarfile.FIFOTYPE, b""),
]
LONG = [("./" + "n" * 150, tarfile.REGTYPE, b"x" * 700), ("./l", tarfile.SYMTYPE, "t" * 120)]
for members in FILES[:2], FILES, LONG, [("../../x", tarfile.REGTYPE, b""), ("/abs", tarfile.REGTYPE, b"")]:
    for form in tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT:
        try:
            plain = tar(members, form)
            seed("tar", b"d" + plain)
            for how, stream in (0, plain), (1, plain), (2, plain), (3, gzip.compress(plain, mtime=0)), (4, zstandard.compress(plain)):
                seed("payload_deb", bytes([how + 8]) + stream)
            seed("payload_deb", bytes([5]) + lzma.compress(plain, lzma.FORMAT_XZ, preset=0))
            seed("payload_deb", bytes([6 + 16]) + lzma.compress(plain, lzma.FORMAT_ALONE, preset=0))
        except ValueError:
            # A name that the form cannot hold.
            pass

MANIFEST = ("artifact_manifest.txt", tarfile.REGTYPE, b"p\n")
TREE = [
    MANIFEST,
    ("p", tarfile.DIRTYPE, b""),
    ("p/a", tarfile.REGTYPE, b"abc" * 300),
    ("p/b", tarfile.LNKTYPE, "p/a"),
    ("p/c", tarfile.SYMTYPE, "a"),
    ("p/" + "n" * 150, tarfile.REGTYPE, b""),
]
for members in [MANIFEST], TREE, TREE[::-1], TREE + [("p/../../x", tarfile.REGTYPE, b"")]:
    for form in tarfile.GNU_FORMAT, tarfile.PAX_FORMAT:
        seed("archive", tar(members, form))

# Changes to the headers of a good file: which file; what, which, field, how, value.
for which in range(5):
    seed("elf_convert", bytes([which]))
    for what in range(8):
        for how in range(5):
            seed("elf_convert", bytes([which]) + struct.pack("<4BQ", what, which, how, how, 1 << how))


def cpio(members, stripped):
    out = b""
    for index, (name, size, content) in enumerate(members):
        if stripped:
            out += b"07070X%08x" % index
        else:
            fields = [index, 0o100644, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name) + 1, 0]
            out += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    fields = [0] * 11 + [11, 0]
    return out + b"070701" + b"".join(b"%08x" % field for field in fields) + b"TRAILER!!!\0" + bytes(-(len(out) + 121) % 4)


# The files that the header in targets/payload_rpm.rs lists.
LISTED = [
    ("./opt/dir", 0, b""),
    ("./opt/a", 5, b"abcde"),
    ("./opt/b", 0, b""),
    ("./opt/c", 3, b"abc"),
    ("./opt/empty", 0, b""),
    ("./opt/link", 1, b"a"),
    ("./opt/large", 70_000, bytes(70_000)),
]
for members in LISTED[:1], LISTED[:6], LISTED, LISTED[1:3]:
    for stripped in False, True:
        plain = cpio(members, stripped)
        seed("payload_rpm", bytes([2 + 8]) + plain)
        if len(plain) < 20_000:
            seed("payload_rpm", bytes([0]) + plain)
            seed("payload_rpm", bytes([1 + 16]) + plain)
        seed("payload_rpm", bytes([3]) + gzip.compress(plain, mtime=0))
        seed("payload_rpm", bytes([4 + 8]) + zstandard.compress(plain))
        seed("payload_rpm", bytes([5]) + lzma.compress(plain, lzma.FORMAT_XZ, preset=0))
        seed("payload_rpm", bytes([6 + 8]) + lzma.compress(plain, lzma.FORMAT_ALONE, preset=0))
