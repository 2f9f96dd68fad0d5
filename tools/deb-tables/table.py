"""Joins the symbols and shlibs files of packages into one table.

    table.py NAME SUITE DATE DIRECTORY     with DATE of the archive, and DIRECTORY/PACKAGE/{control,symbols,shlibs}

The table says of each library (by SONAME) which relation a program that needs it has, and from which
version on. A symbols file has a line for each symbol; here are only those that say something else than
the rest of their version node. docs/relations.md has the format.
"""

import collections
import functools
import pathlib
import re
import subprocess
import sys


@functools.lru_cache(maxsize=None)
def earlier(one, other):
    return subprocess.run(["dpkg", "--compare-versions", one, "lt", other]).returncode == 0


def order(one, other):
    return -1 if earlier(one, other) else int(earlier(other, one))


# Instances of the C++ library's templates, which whoever uses them has as well.
INSTANCE = re.compile(r"_Z(Z|GVZ|T[ISV])?N?K?(S[a-z]|St|9__gnu_cxx)")

BY_VERSION = functools.cmp_to_key(order)


class Library:
    def __init__(self, template):
        self.templates = [template]
        self.symbols = {}


def read_symbols(path):
    """SONAME → Library, of a symbols file (deb-symbols(5))."""
    libraries = {}
    current = None
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("*"):
            continue  # a field about building, as Build-Depends-Package
        if line.startswith("|"):
            current.templates.append(line[1:].strip())
        elif line.startswith(" "):
            match = re.fullmatch(r" (?:\([^)]*\))?(?:\"(.*)\"|(\S+)) (\S+)(?: (\d+))?", line)
            if not match:
                raise SystemExit(f"{path}: {line!r} is no symbol")
            name, node = (match[1] or match[2]).rsplit("@", 1)
            current.symbols[name, node] = (match[3], int(match[4] or 0))
        else:
            soname, template = line.split(None, 1)
            current = libraries[soname] = Library(template)
    return libraries


def read_shlibs(path):
    """SONAME → relation, of a shlibs file (deb-shlibs(5))."""
    relations = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        if line.startswith("udeb:"):
            continue
        line = line.removeprefix("deb:").strip()
        name, version, relation = line.split(None, 2)
        # The file has name and version apart; a SONAME joins them in one of two ways, of which the
        # second has no plain number: libgsl.so.27, libbfd-2.40.so.
        relations[f"{name}.so.{version}"] = relation
        if not version.isdigit():
            relations[f"{name}-{version}.so"] = relation
    return relations




def write(soname, library):
    print(f"library {soname} {smallest(library)} {library.templates[0]}")
    for number, template in enumerate(library.templates[1:], 1):
        print(f"alternative {number} {template}")
    nodes = collections.defaultdict(dict)
    for (name, node), what in library.symbols.items():
        nodes[node][name] = what
    for node in sorted(nodes):
        symbols = nodes[node]
        if node == "Base":
            # Symbols without a version may be any library's: only those that are listed are known to
            # be of this one.
            usual = (smallest(library), 0)
        else:
            counts = collections.Counter(symbols.values())
            usual = max(sorted(counts), key=lambda what: counts[what])
            print(f"node {node} {label(usual)}")
        others = collections.defaultdict(list)
        for name, what in symbols.items():
            if node == "Base" and INSTANCE.match(name):
                continue
            if what != usual:
                others[what].append(name)
        for what in sorted(others, key=lambda what: (BY_VERSION(what[0]), what[1])):
            print(f"symbols {node} {label(what)} {' '.join(sorted(others[what]))}")


def label(what):
    version, alternative = what
    return f"{version}|{alternative}" if alternative else version


def smallest(library):
    versions = [version for version, alternative in library.symbols.values() if not alternative]
    return min(versions, key=BY_VERSION, default="-")


def main():
    name, suite, date, directory = sys.argv[1:]
    print(f"# The libraries of {name} ({suite}), of their symbols and shlibs files.")
    print(f"# Read when the archive was of {date}.")
    print("# Made by tools/deb-tables/make.sh; docs/relations.md has the format.")
    libraries, relations = {}, {}
    for package in sorted(pathlib.Path(directory).iterdir()):
        control = (package / "control").read_text()
        version = re.search(r"^Version: (\S+)$", control, re.MULTILINE)[1]
        found = False
        if (package / "symbols").exists():
            libraries |= read_symbols(package / "symbols")
            found = True
        if (package / "shlibs").exists():
            relations |= read_shlibs(package / "shlibs")
            found = True
        if found:
            print(f"package {package.name} {version}")
    for soname in sorted(libraries.keys() | relations.keys()):
        if soname in libraries:
            write(soname, libraries[soname])
        else:
            print(f"library {soname} - {relations[soname]}")


main()
