#!/usr/bin/python3
"""Holds a converted library or program against the fat one it was made from.

    before_after.py [--sysroot DIR] BEFORE AFTER

- eu-elflint and readelf must have no complaint about AFTER that they do not have about BEFORE.
- If BEFORE loads under ld.so, AFTER must: all symbols bound at once, next to generated stand-ins for the
  libraries that this machine does not have. A stand-in defines what BEFORE asks of it, under the
  versions asked for; the one for the HIP runtime is made of tests/fixtures/runtime/standin.c, whose log
  tells that AFTER registers the same wrappers, with the magic HIPK, a marker, and co_index = position.
  A program is started, with another `main` (no_main.c).

--sysroot names a directory with another C library (usr/lib/x86_64-linux-gnu and a loader in it), for
files that want a newer one than the machine's.

Prints one line of JSON: {"loads": bool, "registered": n, "faults": [...]}; exit status 1 if there are
faults. Needs readelf (package binutils), eu-elflint (elfutils), gcc.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RUNTIME = os.path.join(HERE, "..", "fixtures", "runtime")
HIPF, HIPK = 0x48495046, 0x4B504948
LIBRARIES = "usr/lib/x86_64-linux-gnu"


def run(command, **options):
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **options.pop("env", {})}
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=environment, **options
    )


def complaints(path):
    """What the two tools find wrong, without numbers: sections and symbols may have others than before."""
    found = set()
    lint = run(["eu-elflint", "--gnu-ld", path])
    for line in lint.stdout.splitlines() + lint.stderr.splitlines():
        if line.strip() != "No errors":
            found.add("eu-elflint: " + line)
    # On standard output there are megabytes of tables, and some warnings among them.
    read = run(["readelf", "--all", "--wide", path])
    for line in read.stderr.splitlines():
        found.add("readelf: " + line)
    for line in read.stdout.splitlines():
        if re.search(r"<corrupt|Warning|Error:|\[bad|out of range", line):
            found.add("readelf: " + line)
    return {re.sub(r"\[ *\d+\]|0x[0-9a-f]+|\d+", "N", line.replace(path, "FILE")) for line in found}


class Machine:
    """The loader and the libraries that it finds."""

    def __init__(self, sysroot, scratch):
        self.scratch = scratch
        self.stubs = os.path.join(scratch, "stubs")
        os.makedirs(self.stubs, exist_ok=True)
        self.search = [self.stubs]
        self.loader = "/lib64/ld-linux-x86-64.so.2"
        if sysroot:
            self.search.append(os.path.join(sysroot, LIBRARIES))
            self.loader = os.path.join(sysroot, LIBRARIES, "ld-linux-x86-64.so.2")
        self.load = os.path.join(scratch, "load")
        self.no_main = os.path.join(scratch, "no_main.so")
        for source, *how in (
            [os.path.join(RUNTIME, "load.c"), "-o", self.load, "-ldl"],
            [os.path.join(HERE, "no_main.c"), "-shared", "-fPIC", "-o", self.no_main, "-ldl"],
        ):
            compiled = run(["gcc", "-O1", source, *how])
            if compiled.returncode:
                sys.exit(f"before_after.py: gcc: {compiled.stderr}")

    def under_loader(self, arguments, **env):
        return run([self.loader, "--library-path", ":".join(self.search), *arguments], env=env)

    def missing(self, path):
        listed = self.under_loader([path], LD_TRACE_LOADED_OBJECTS="1")
        return re.findall(r"^\s*(\S+) => not found", listed.stdout, re.MULTILINE)

    def start(self, path):
        """What went wrong, if anything, and what the stand-in for the runtime was told."""
        log = os.path.join(self.scratch, "log")
        if os.path.exists(log):
            os.remove(log)
        path = os.path.abspath(path)
        if " INTERP " in run(["readelf", "--segments", "--wide", path]).stdout:
            done = self.under_loader(["--preload", self.no_main, path], GFXPACK_STANDIN_LOG=log, LD_BIND_NOW="1")
        else:
            done = self.under_loader([self.load, path], GFXPACK_STANDIN_LOG=log)
        told = []
        if os.path.exists(log):
            with open(log, encoding="utf-8") as lines:
                told = [json.loads(line) for line in lines]
        said = (done.stdout + done.stderr).strip().splitlines()
        error = None if done.returncode == 0 else f"status {done.returncode}: {said[-1] if said else ''}"
        return error, told


def stand_ins(machine, path, missing):
    """Makes a shared library for each of those names, with what the file at `path` wants of it."""
    # Which version belongs to which library.
    owner, library = {}, None
    for line in run(["readelf", "--version-info", "--wide", path]).stdout.splitlines():
        if match := re.search(r"File: (\S+)", line):
            library = match[1]
        elif match := re.search(r"Name: (\S+)\s+Flags:", line):
            owner.setdefault(match[1], library)
    versioned = {name: {} for name in missing}
    for version, name in owner.items():
        if name in versioned:
            versioned[name][version] = set()
    # What no version tells apart goes into the first one that has none; which one is of no interest.
    loose = next((name for name in missing if not versioned[name]), missing[0])
    plain, data = set(), set()
    for line in run(["readelf", "--dyn-syms", "--wide", path]).stdout.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[6] != "UND" or fields[4] == "WEAK":
            continue
        symbol, _, version = fields[7].partition("@")
        version = version.lstrip("@")
        if fields[3] == "OBJECT" or re.match(r"_ZT[VIST]", symbol):
            data.add(symbol)
        if not version:
            plain.add(symbol)
        elif owner.get(version) in versioned:
            versioned[owner[version]][version].add(symbol)
    for name in missing:
        make_stand_in(machine, name, versioned[name], plain if name == loose else set(), data)


def make_stand_in(machine, name, versions, plain, data):
    inputs, defined = [], set()
    base = os.path.join(machine.scratch, name)
    wanted = set(plain).union(*versions.values())
    if "__hipRegisterFatBinary" in wanted:
        inputs.append(base + ".standin.o")
        compile_ = ["gcc", "-O1", "-fPIC", "-c", os.path.join(RUNTIME, "standin.c"), "-o", inputs[0]]
        subprocess.run(compile_, check=True)
        for line in run(["nm", "--defined-only", "--extern-only", inputs[0]]).stdout.splitlines():
            defined.add(line.split()[-1])
    with open(base + ".s", "w", encoding="utf-8") as out:
        for symbol in sorted(wanted - defined):
            out.write(f'.globl "{symbol}"\n')
            if symbol in data:
                out.write(f'.bss\n.balign 32\n.type "{symbol}", @object\n.size "{symbol}", 4096\n"{symbol}": .zero 4096\n')
            else:
                out.write(f'.text\n.type "{symbol}", @function\n"{symbol}": xor %eax, %eax\nret\n')
        out.write('.section .note.GNU-stack,"",@progbits\n')
    with open(base + ".map", "w", encoding="utf-8") as out:
        for version, symbols in versions.items():
            out.write(version + " {" + "".join(f' "{symbol}";' for symbol in sorted(symbols)) + " };\n")
    link = ["gcc", "-shared", "-fPIC", *inputs, base + ".s", "-o", os.path.join(machine.stubs, name)]
    link += [f"-Wl,-soname,{name}", "-lpthread"]
    if versions:
        link.append(f"-Wl,--version-script,{base}.map")
    subprocess.run(link, check=True)


def wrapper_position(path, address):
    for line in run(["readelf", "--sections", "--wide", path]).stdout.splitlines():
        if match := re.search(r"\] \.hipFatBinSegment\s+\S+\s+([0-9a-f]+)", line):
            return (address - int(match[1], 16)) / 24
    return None


def main():
    for tool, package in ("readelf", "binutils"), ("eu-elflint", "elfutils"), ("gcc", "gcc"), ("nm", "binutils"):
        if not shutil.which(tool):
            sys.exit(f"before_after.py: `{tool}` is missing: apt-get install {package}")
    parser = argparse.ArgumentParser(description="Holds a converted library against the fat one.")
    parser.add_argument("--sysroot")
    parser.add_argument("before")
    parser.add_argument("after")
    arguments = parser.parse_args()
    before, after = arguments.before, arguments.after

    faults = sorted("new: " + line for line in complaints(after) - complaints(before))
    with tempfile.TemporaryDirectory() as scratch:
        machine = Machine(arguments.sysroot, scratch)
        missing = machine.missing(before)
        if missing:
            stand_ins(machine, before, missing)
        error, told_before = machine.start(before)
        if error:
            print(f"before_after.py: {before} itself does not load: {error}", file=sys.stderr)
        loads = error is None
        error, told_after = machine.start(after)
        if loads and error:
            faults.append(f"does not load: {error}")
        if loads and not told_before:
            faults.append("the fat library registers nothing: is its HIP runtime a stand-in?")
    if any(line["magic"] != HIPF for line in told_before):
        faults.append("the fat library registers other than fat wrappers")
    if loads and [l["wrapper_vaddr"] for l in told_before] != [l["wrapper_vaddr"] for l in told_after]:
        faults.append(f"registers {len(told_after)} wrappers, not the same {len(told_before)}")
    for line in told_after:
        position = wrapper_position(after, line["wrapper_vaddr"])
        if line["magic"] != HIPK or line["marker"] is None or line["co_index"] != position:
            faults.append(f"registers {line}")
    print(json.dumps({"loads": loads, "registered": len(told_after), "faults": faults}))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
