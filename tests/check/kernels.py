#!/usr/bin/python3
"""Finds every code object of fat artifacts again in an installed tree, the way the loader and the HIP
runtime would, and compares it byte for byte.

    kernels.py [--same-files] [--debian-modes] [--absent ISA]... --root ROOT ORIGINAL...

ORIGINAL  an artifact directory as a build made it, or a directory of such (a shard). Where several
          hold one host file, the first one named is the one that must be installed; the code objects of
          all are looked for, under the wrapper of the same position.
ROOT      the prefixes of the split artifacts, or the content of packages, laid over one root.
--same-files
          A file without device code that several originals hold is the same in all of them: what is
          installed is the union of all that they have, not the first one's.
--debian-modes
          What is installed came from a .deb, in which shared libraries are not executable (Debian's
          policy 8.1).
--absent ISA
          A target id whose packages are not installed: the search of each marker must meet no archive
          for it, installed or broken, and no file or link with it in its path may be there.

Everything is read here, from the formats' descriptions: this file uses none of gfxpack's code.

- The originals' wrappers are paired with bundles by address, through the dynamic relocations
  (R_X86_64_RELATIVE, R_X86_64_64, DT_RELR) or the stored word.
- The installed file is read through its segments, as the loader maps it: wrappers of the same number at
  the same addresses, magic HIPK, co_index = position, marker behind the relocated pointer.
- The marker's search paths are tried from the file's own directory: for the full target id, then each
  subset of its features, then the bare processor; the first archive that lists the id is taken.
- What the host code can see must be as before: the bytes of the allocated sections that a conversion
  has no reason to touch are compared at their addresses.
- Every other file and link of the originals is in ROOT as it was, and ROOT holds nothing else but
  archives and manifests whose kernels are all accounted for.

Code objects that are there, but hidden from a device with more features by an archive that comes first in
its search (the runtime stops at the first archive that lists an id), are counted and named,
and are no mismatch.

One line of JSON on standard output; what is wrong on standard error; exit status 1 if anything is.
Needs python3-msgpack and python3-zstandard (Debian's names).
"""

import argparse
import hashlib
import itertools
import json
import mmap
import os
import re
import stat
import struct
import sys
import zlib

try:
    import msgpack
    import zstandard
except ImportError as error:
    sys.exit(f"kernels.py: {error}: apt-get install python3-msgpack python3-zstandard, run by /usr/bin/python3")

HIPF, HIPK = 0x48495046, 0x4B504948
WRAPPER = struct.Struct("<IIQQ")
BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
MARKER_MAX = 64 << 10
SHOWN = 40
PAGE = 4096

ET_REL, ET_EXEC, ET_DYN, EM_X86_64 = 1, 2, 3, 62
PT_LOAD, PT_DYNAMIC = 1, 2
SHT_NOBITS, SHF_ALLOC = 8, 2
DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELRSZ, DT_RELR = 6, 7, 8, 35, 36
R_X86_64_64, R_X86_64_RELATIVE = 1, 8

# Sections that a conversion may rewrite or move: the device code, what points at it, what moves to make
# room for a program header, and tables that hold section numbers or the addresses of the others.
REWRITTEN = re.compile(
    r"\.interp|\.hip_fatbin|\.hipFatBinSegment|\.dynamic|\.dynsym|\.(gnu\.)?hash|\.rel(a|r)\..*|\.relr?|\.note.*"
)
# Shared libraries by their names.
LIBRARY = re.compile(r"lib.*\.so(\..*)?")
# Fat libraries that a program picks by the ISA in their names: they stay as they are.
PER_ISA_LIBRARY = re.compile(r"libMIOpenCK.*_gfx[0-9a-f]+.*\.so.*")


class Bad(Exception):
    """Something is not as it must be."""


# What reading a damaged file can end in.
FAILURES = (
    Bad, OSError, struct.error, ValueError, KeyError, IndexError, TypeError,
    zlib.error, zstandard.ZstdError, msgpack.UnpackException,
)  # fmt: skip


def whole(path):
    """The bytes of a file, mapped."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def forget(view):
    """Lets go of the pages read so far: a file larger than memory costs no memory."""
    if isinstance(view, mmap.mmap):
        view.madvise(mmap.MADV_DONTNEED)


# ---- ELF ------------------------------------------------------------------------------------------


class Elf:
    """An x86-64 ELF file, as sections and as the memory that the loader makes of it."""

    def __init__(self, data):
        self.data = data
        head = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)
        self.type, _, _, _, phoff, shoff, _, _, phsize, phnum, shsize, shnum, shstrndx = head
        self.segments = [struct.unpack_from("<IIQQQQQQ", data, phoff + i * phsize) for i in range(phnum)]
        self.loads = [s for s in self.segments if s[0] == PT_LOAD]
        self.sections = {}
        if shoff:
            raw = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * shsize) for i in range(shnum)]
            names = raw[shstrndx]
            strings = data[names[4] : names[4] + names[5]]
            for section in raw:
                name = strings[section[0] : strings.index(b"\0", section[0])].decode()
                if name in self.sections and name.startswith(".hip"):
                    raise Bad(f"two sections {name}")
                self.sections[name] = section

    @staticmethod
    def is_host(data):
        return len(data) >= 64 and data[:6] == b"\x7fELF\x02\x01" and data[18:20] == bytes([EM_X86_64, 0])

    def is_fat(self):
        section = self.sections.get(".hip_fatbin")
        wrappers = self.sections.get(".hipFatBinSegment")
        return all(s is not None and s[1] != SHT_NOBITS and s[5] > 0 for s in (section, wrappers))

    def memory(self, address, size):
        """What is in memory before relocation. The last segment that maps an address wins."""
        for _, _, offset, vaddr, _, filesz, memsz, _ in reversed(self.loads):
            if vaddr <= address and address + size <= vaddr + memsz:
                start = address - vaddr
                in_file = max(0, min(size, filesz - start))
                found = self.data[offset + start : offset + start + in_file]
                if len(found) != in_file:
                    raise Bad(f"the segment at {vaddr:#x} ends after the file")
                return bytes(found) + bytes(size - in_file)
        raise Bad(f"no segment maps {address:#x}..{address + size:#x}")

    def room_at(self, address):
        """How many bytes a segment maps from there on."""
        for _, _, _, vaddr, _, _, memsz, _ in reversed(self.loads):
            if vaddr <= address < vaddr + memsz:
                return vaddr + memsz - address
        raise Bad(f"no segment maps {address:#x}")

    def word(self, address):
        return struct.unpack("<Q", self.memory(address, 8))[0]

    def pointers(self, start, end):
        """The words in start..end that relocations fill: address → value (load base 0)."""
        dynamic = {}
        for segment in self.segments:
            if segment[0] == PT_DYNAMIC:
                for tag, value in struct.iter_unpack("<QQ", self.memory(segment[3], segment[6] // 16 * 16)):
                    if tag == 0:
                        break
                    dynamic[tag] = value
        found = {}

        def put(at, value):
            if at in found:
                raise Bad(f"two relocations for {at:#x}")
            found[at] = value

        if dynamic.get(DT_RELASZ):
            for at, info, addend in struct.iter_unpack("<QQq", self.memory(dynamic[DT_RELA], dynamic[DT_RELASZ])):
                if not start <= at < end:
                    continue
                kind, symbol = info & 0xFFFFFFFF, info >> 32
                if kind == R_X86_64_RELATIVE:
                    put(at, addend)
                elif kind == R_X86_64_64:
                    entry = self.memory(dynamic[DT_SYMTAB] + symbol * 24, 24)
                    _, _, _, section, value, _ = struct.unpack("<IBBHQQ", entry)
                    if section == 0:
                        raise Bad(f"the pointer at {at:#x} is an undefined symbol's")
                    put(at, value + addend)
                else:
                    raise Bad(f"relocation of type {kind} at {at:#x}")
        if dynamic.get(DT_RELRSZ):
            at = 0
            for (word,) in struct.iter_unpack("<Q", self.memory(dynamic[DT_RELR], dynamic[DT_RELRSZ])):
                if word & 1 == 0:
                    places, at = [word], word + 8
                else:
                    places, at = [at + 8 * i for i in range(63) if word >> (i + 1) & 1], at + 63 * 8
                for place in places:
                    if start <= place < end:
                        put(place, self.word(place))
        return found

    def wrappers(self):
        """(address, magic, version, relocated pointer, co_index) of each wrapper, in order."""
        section = self.sections.get(".hipFatBinSegment")
        if section is None:
            raise Bad("no .hipFatBinSegment")
        start, size = section[3], section[5]
        if size == 0 or size % 24:
            raise Bad(f".hipFatBinSegment has {size} bytes")
        filled = self.pointers(start, start + size)
        result = []
        for i, (magic, version, stored, last) in enumerate(WRAPPER.iter_unpack(self.memory(start, size))):
            address = start + 24 * i
            if self.type == ET_DYN and address + 8 not in filled:
                raise Bad(f"wrapper {i} has no relocation")
            result.append((address, magic, version, filled.pop(address + 8, stored), last & 0xFFFFFFFF))
        if filled:
            raise Bad(f"relocations into wrappers beside their pointers: {sorted(filled)}")
        return result


# ---- bundles --------------------------------------------------------------------------------------


def decompress_bundle(data, start, end):
    """The plain bundle in a compressed one."""
    version, method = struct.unpack_from("<HH", data, start + 4)
    if version == 1:
        size, digest, at, stop = *struct.unpack_from("<IQ", data, start + 8), start + 20, end
    elif version == 2:
        total, size, digest = struct.unpack_from("<IIQ", data, start + 8)
        at, stop = start + 24, start + total
    elif version == 3:
        total, size, digest = struct.unpack_from("<QQQ", data, start + 8)
        at, stop = start + 32, start + total
    else:
        raise Bad(f"compressed bundle of version {version}")
    if stop > end:
        raise Bad("a compressed bundle ends after its section")
    payload = data[at:stop]
    if method == 1:
        plain = zstandard.ZstdDecompressor().decompressobj().decompress(payload)
    elif method == 0:
        plain = zlib.decompressobj().decompress(payload)
    else:
        raise Bad(f"compression method {method}")
    if len(plain) != size:
        raise Bad(f"a compressed bundle has {len(plain)} bytes, its header says {size}")
    if hashlib.md5(plain).digest()[:8] != struct.pack("<Q", digest):
        raise Bad("a compressed bundle has another digest than its header says")
    return plain


def bundle(data, start, end):
    """Target id → (holder, offset, size) of the code objects in the bundle at data[start:end]."""
    if data[start : start + 4] == b"CCOB":
        data = decompress_bundle(data, start, end)
        start, end = 0, len(data)
    if data[start : start + 24] != BUNDLE_MAGIC:
        raise Bad(f"no bundle at {start:#x}")
    found = {}
    (count,) = struct.unpack_from("<Q", data, start + 24)
    at = start + 32
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", data, at)
        name = bytes(data[at + 24 : at + 24 + length]).decode()
        at += 24 + length
        if name.startswith("host-") or size == 0:
            continue
        # kind - arch - vendor - os - environment - target; the target can hold dashes itself.
        parts = name.split("-", 5)
        if parts[0] not in ("hip", "hipv4") or parts[1] != "amdgcn" or len(parts) != 6:
            raise Bad(f"entry id {name}")
        if start + offset + size > end:
            raise Bad(f"entry {name} ends after its bundle")
        if parts[5] in found:
            raise Bad(f"{parts[5]} twice in a bundle")
        found[parts[5]] = (data, start + offset, size)
    return found


# ---- archives -------------------------------------------------------------------------------------


class Kpack:
    def __init__(self, path):
        self.data = whole(path)
        magic, version, toc = struct.unpack_from("<4sIQ", self.data)
        if magic != b"KPAK" or version != 1:
            raise Bad(f"{path}: not an archive of version 1")
        self.toc = msgpack.unpackb(self.data[toc:], raw=False)
        self.isas = self.toc["gfx_arches"]
        self.kernels = self.toc["toc"]
        self.scheme = self.toc["compression_scheme"]
        if self.scheme == "none":
            self.blobs = [(blob["offset"], blob["size"]) for blob in self.toc["blobs"]]
        elif self.scheme == "zstd-per-kernel":
            at = self.toc["zstd_offset"]
            end = at + self.toc["zstd_size"]
            if end > toc:
                raise Bad(f"{path}: the blob reaches into the TOC")
            (count,) = struct.unpack_from("<I", self.data, at)
            at += 4
            self.blobs = []
            for _ in range(count):
                (size,) = struct.unpack_from("<I", self.data, at)
                self.blobs.append((at + 4, size))
                at += 4 + size
            if at != end:
                raise Bad(f"{path}: the frames end at {at:#x}, zstd_size says {end:#x}")
        else:
            raise Bad(f"{path}: compression {self.scheme}")

    def kernel(self, name, isa):
        entry = self.kernels[name][isa]
        if entry["type"] != "hsaco":
            raise Bad(f"type {entry['type']}")
        offset, size = self.blobs[entry["ordinal"]]
        stored = self.data[offset : offset + size]
        if self.scheme != "none":
            stored = zstandard.ZstdDecompressor().decompress(stored)
        if len(stored) != entry["original_size"]:
            raise Bad(f"{len(stored)} bytes, original_size says {entry['original_size']}")
        return stored


def search_order(target):
    """A target id, it with fewer features, the bare processor."""
    processor, *features = target.split(":")
    for count in range(len(features), -1, -1):
        for some in itertools.combinations(features, count):
            yield ":".join([processor, *some])


# ---- the comparison -------------------------------------------------------------------------------


class Check:
    def __init__(self, root, same_files=False, absent=(), debian_modes=False):
        self.root = os.path.abspath(root)
        self.same_files = same_files
        self.debian_modes = debian_modes
        self.absent = set(absent)
        self.absent_seen = set()  # those of them that an original has code or files for
        self.archives = {}
        self.claimed = set()  # (archive, name, isa) that an original accounts for
        self.isas = set()
        self.converted = []
        self.registered = {}  # (binary, wrapper) → (marker, the ids that the originals have)
        self.count = dict.fromkeys(
            "binaries wrappers code_objects bytes host_bytes files file_bytes links kept_whole kpacks kpack_bytes absent".split(), 0
        )
        self.wrong = 0

    def complain(self, text):
        self.wrong += 1
        if self.wrong <= SHOWN:
            print(f"kernels.py: {text}", file=sys.stderr)
        elif self.wrong == SHOWN + 1:
            print("kernels.py: and more", file=sys.stderr)

    def archive(self, path):
        path = os.path.realpath(path)
        if path not in self.archives:
            self.archives[path] = Kpack(path)
        return path, self.archives[path]

    def find(self, directory, marker, target):
        """The archive that the runtime takes the target's code from, and the id it has there."""
        for isa in search_order(target):
            for search in marker["kpack_search_paths"]:
                path = os.path.join(directory, search.replace("@GFXARCH@", isa))
                if os.path.exists(path):
                    path, kpack = self.archive(path)
                    if isa in kpack.isas:
                        return path, kpack, isa
        raise Bad(f"no archive lists {target}")

    def marker(self, installed, address):
        unpacker = msgpack.Unpacker(raw=False)
        unpacker.feed(installed.memory(address, min(MARKER_MAX, installed.room_at(address))))
        marker = unpacker.unpack()
        if not isinstance(marker, dict) or not marker["kpack_search_paths"] or not marker["kernel_name"]:
            raise Bad(f"the marker is {marker}")
        return marker

    def host_part(self, original, installed):
        for name, (_, kind, flags, address, _, size, *_) in original.sections.items():
            if not flags & SHF_ALLOC or REWRITTEN.fullmatch(name):
                continue
            # Thread-local zeros have addresses that are not theirs.
            if kind == SHT_NOBITS and flags & 0x400:
                continue
            if name in installed.sections and installed.sections[name][3] != address:
                raise Bad(f"{name} has moved")
            for at in range(address, address + size, 16 << 20):
                length = min(16 << 20, address + size - at)
                if original.memory(at, length) != installed.memory(at, length):
                    raise Bad(f"the bytes of {name} have changed")
            self.count["host_bytes"] += size

    def binary(self, relative, originals):
        place = os.path.join(self.root, relative)
        data = whole(place)
        installed = Elf(data)
        if installed.is_fat():
            raise Bad("device code is left in it")
        wrappers = installed.wrappers()
        self.count["binaries"] += 1
        self.converted.append(relative)
        self.count["wrappers"] += len(wrappers)
        for nth, original_path in enumerate(originals):
            before = whole(original_path)
            original = Elf(before)
            fatbin = original.sections[".hip_fatbin"]
            old = original.wrappers()
            if len(old) != len(wrappers):
                raise Bad(f"{len(wrappers)} wrappers, {original_path} has {len(old)}")
            if nth == 0:
                # No page leaves a file for less than one; the marker and headers take some.
                if fatbin[5] >= 3 * PAGE and len(data) >= len(before):
                    raise Bad("it is no smaller than before")
                self.host_part(original, installed)
            for i, (was, now) in enumerate(zip(old, wrappers)):
                if was[1] != HIPF or now[1] != HIPK:
                    raise Bad(f"wrapper {i}: magic {was[1]:#x} became {now[1]:#x}")
                if nth == 0 and was[0] != now[0]:
                    raise Bad(f"wrapper {i} has moved")
                if was[2] != now[2]:
                    raise Bad(f"wrapper {i}: version {was[2]} became {now[2]}")
                if now[4] != i:
                    raise Bad(f"wrapper {i}: co_index is {now[4]}")
                marker = self.marker(installed, now[3])
                if not fatbin[3] <= was[3] < fatbin[3] + fatbin[5]:
                    raise Bad(f"{original_path}: wrapper {i} points at {was[3]:#x}, outside .hip_fatbin")
                objects = bundle(before, was[3] - fatbin[3] + fatbin[4], fatbin[4] + fatbin[5])
                self.registered.setdefault((relative, i), (marker, set()))[1].update(objects.keys() - self.absent)
                for target, (holder, offset, size) in objects.items():
                    if target in self.absent:
                        self.absent_code_object(relative, marker, i, target)
                        continue
                    self.code_object(relative, marker, i, target, bytes(holder[offset : offset + size]))
                forget(before)

    def code_object(self, relative, marker, index, target, expected):
        name = f"{marker['kernel_name']}#{index}"
        try:
            path, kpack, isa = self.find(os.path.join(self.root, os.path.dirname(relative)), marker, target)
            if isa != target:
                raise Bad(f"{os.path.basename(path)} only has {isa}")
            if isa not in kpack.kernels.get(name, {}):
                raise Bad(f"{os.path.basename(path)} has no {name}")
            found = kpack.kernel(name, isa)
            self.claimed.add((path, name, isa))
            if found != expected:
                raise Bad(f"{len(found)} bytes in {os.path.basename(path)} are not the {len(expected)} of the original")
        except FAILURES as error:
            self.complain(f"{relative}: wrapper {index}, {target}: {error}")
            return
        self.isas.add(target)
        self.count["code_objects"] += 1
        self.count["bytes"] += len(expected)
        forget(kpack.data)

    def absent_code_object(self, relative, marker, index, target):
        """The runtime must be told that there is no code, and not be led to another ISA's."""
        directory = os.path.join(self.root, os.path.dirname(relative))
        for isa in search_order(target):
            for search in marker["kpack_search_paths"]:
                path = os.path.join(directory, search.replace("@GFXARCH@", isa))
                if os.path.lexists(path):
                    self.complain(f"{relative}: wrapper {index}, {target}: it is not installed, but there is {search} for {isa}")
        self.absent_seen.add(target)
        self.count["absent"] += 1

    def is_absent(self, relative):
        """Whether a path is of an ISA that is not installed."""
        found = set(re.findall(r"gfx[0-9a-f]+", relative)) & self.absent
        self.absent_seen |= found
        return bool(found)

    def hidden(self):
        """Counts the code objects that a device with more features than they name does not get, because
        an archive of another binary's comes first. The fat binary would have given them."""
        count = 0
        for (relative, index), (marker, have) in self.registered.items():
            name = f"{marker['kernel_name']}#{index}"
            for device in self.isas - have:
                wanted = next((isa for isa in search_order(device) if isa in have), None)
                if wanted is None:
                    continue
                try:
                    path, kpack, isa = self.find(os.path.join(self.root, os.path.dirname(relative)), marker, device)
                    found = isa == wanted and isa in kpack.kernels.get(name, {})
                except FAILURES:
                    found = False
                if not found:
                    count += 1
                    if count <= SHOWN:
                        print(f"kernels.py: {relative}: wrapper {index}: {wanted} is hidden on {device}", file=sys.stderr)
        return count

    def mode(self, relative, before, after):
        expected = before.st_mode
        if self.debian_modes and LIBRARY.fullmatch(os.path.basename(relative)):
            expected &= ~0o111
        if after.st_mode != expected:
            raise Bad(f"mode {before.st_mode:o} became {after.st_mode:o}")

    def plain(self, relative, original):
        place = os.path.join(self.root, relative)
        before = os.lstat(original)
        try:
            after = os.lstat(place)
        except FileNotFoundError:
            raise Bad("it is not there") from None
        if stat.S_IFMT(before.st_mode) != stat.S_IFMT(after.st_mode):
            raise Bad("it is of another type")
        if stat.S_ISLNK(before.st_mode):
            if os.readlink(original) != os.readlink(place):
                raise Bad("it points elsewhere")
            self.count["links"] += 1
            return
        self.mode(relative, before, after)
        if not same_bytes(original, place):
            raise Bad("its bytes have changed")
        self.count["files"] += 1
        self.count["file_bytes"] += before.st_size

    def run(self, artifacts):
        originals = {}  # path under the root → the originals' paths, by preference
        for artifact in artifacts:
            for prefix in prefixes(artifact):
                base = os.path.join(artifact, prefix)
                for path in walk(base):
                    originals.setdefault(os.path.relpath(path, base), []).append(path)
        for relative, paths in sorted(originals.items()):
            try:
                if self.is_absent(relative):
                    if os.path.lexists(os.path.join(self.root, relative)):
                        raise Bad("it is of an ISA that is not installed")
                    self.count["absent"] += 1
                    continue
                fat = [path for path in paths if is_fat(path)]
                if fat and PER_ISA_LIBRARY.fullmatch(os.path.basename(relative)):
                    self.count["kept_whole"] += 1
                    fat = []
                if fat:
                    if len(fat) != len(paths):
                        raise Bad("a fat binary in some originals only")
                    self.mode(relative, os.stat(fat[0]), os.stat(os.path.join(self.root, relative)))
                    self.binary(relative, fat)
                else:
                    self.plain(relative, paths[0])
                    for other in paths[1:] if self.same_files else []:
                        if not same_entry(other, paths[0]):
                            raise Bad(f"{other} is not the same as {paths[0]}")
            except FAILURES as error:
                self.complain(f"{relative}: {error}")
        for isa in sorted(self.absent - self.absent_seen):
            self.complain(f"--absent {isa}: no original has anything for it")
        for path in walk(self.root):
            relative = os.path.relpath(path, self.root)
            if relative in originals:
                continue
            if path.endswith(".kpack") and os.path.basename(os.path.dirname(path)) == ".kpack":
                self.unclaimed(relative, path)
            elif not path.endswith(".kpm"):
                self.complain(f"{relative}: no original has it")

    def unclaimed(self, relative, path):
        self.count["kpacks"] += 1
        self.count["kpack_bytes"] += os.path.getsize(path)
        try:
            path, kpack = self.archive(path)
        except FAILURES as error:
            self.complain(f"{relative}: {error}")
            return
        named = set()
        for name, entries in kpack.kernels.items():
            for isa, entry in entries.items():
                named.add(entry["ordinal"])
                if (path, name, isa) not in self.claimed:
                    self.complain(f"{relative}: {name} for {isa} is in no original")
        if named != set(range(len(kpack.blobs))):
            self.complain(f"{relative}: it stores kernels that have no name")


def same_entry(one, other):
    links = os.path.islink(one), os.path.islink(other)
    if any(links):
        return all(links) and os.readlink(one) == os.readlink(other)
    return same_bytes(one, other)


def same_bytes(one, other):
    if os.path.samefile(one, other):
        return True
    if os.path.getsize(one) != os.path.getsize(other):
        return False
    with open(one, "rb") as a, open(other, "rb") as b:
        while True:
            left, right = a.read(1 << 20), b.read(1 << 20)
            if left != right:
                return False
            if not left:
                return True


def is_fat(path):
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        if not Elf.is_host(file.read(64)):
            return False
    elf = Elf(whole(path))
    return elf.type in (ET_EXEC, ET_DYN) and elf.is_fat()


def prefixes(artifact):
    with open(os.path.join(artifact, "artifact_manifest.txt"), encoding="utf-8") as manifest:
        return [line.strip() for line in manifest if line.strip()]


def walk(base):
    """Files and links below a directory, which may be missing."""
    for directory, folders, files in os.walk(base):
        links = [folder for folder in folders if os.path.islink(os.path.join(directory, folder))]
        for name in sorted(files + links):
            yield os.path.join(directory, name)


def artifacts_in(path):
    if os.path.exists(os.path.join(path, "artifact_manifest.txt")):
        return [path]
    found = [os.path.join(path, name) for name in sorted(os.listdir(path))]
    found = [d for d in found if os.path.exists(os.path.join(d, "artifact_manifest.txt"))]
    if not found:
        sys.exit(f"kernels.py: {path}: no artifact_manifest.txt in it or one level below")
    return found


def main():
    parser = argparse.ArgumentParser(description="Compares an installed tree with the fat artifacts it was made from.")
    parser.add_argument("--root", required=True)
    parser.add_argument("--same-files", action="store_true")
    parser.add_argument("--debian-modes", action="store_true")
    parser.add_argument("--absent", action="append", default=[], metavar="ISA")
    parser.add_argument("originals", nargs="+", metavar="ORIGINAL")
    arguments = parser.parse_args()
    check = Check(arguments.root, arguments.same_files, arguments.absent, arguments.debian_modes)
    check.run([artifact for path in arguments.originals for artifact in artifacts_in(path)])
    summary = {"isas": sorted(check.isas), "converted": check.converted, "hidden": check.hidden(), "mismatches": check.wrong}
    print(json.dumps({**check.count, **summary}))
    sys.exit(1 if check.wrong else 0)


if __name__ == "__main__":
    main()
