#!/usr/bin/python3
"""Reads rpm repository metadata and prints its facts as JSON, to compare what two programs wrote.

    repodata.py DIR

DIR has repodata/. Sizes and digests of the documents are checked on the way. Shares nothing with the crate.
"""

import gzip
import hashlib
import json
import os
import sys
import xml.etree.ElementTree as ET

import zstandard


def local(tag):
    return tag.rsplit("}", 1)[-1]


def decompress(name, data):
    if name.endswith(".gz"):
        return gzip.decompress(data)
    if name.endswith(".zst"):
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    raise SystemExit(f"{name}: compressed in an unknown way")


def document(root, data):
    get = {local(child.tag): child for child in data}
    name = get["location"].get("href")
    with open(os.path.join(root, name), "rb") as file:
        packed = file.read()
    text = decompress(name, packed)
    for what, found, stated in [
        ("size", str(len(packed)), get["size"].text),
        ("open-size", str(len(text)), get["open-size"].text),
        ("checksum", hashlib.sha256(packed).hexdigest(), get["checksum"].text),
        ("open-checksum", hashlib.sha256(text).hexdigest(), get["open-checksum"].text),
    ]:
        if found != stated:
            raise SystemExit(f"{name}: {what} is {found}, repomd.xml says {stated}")
    for checksum in ("checksum", "open-checksum"):
        assert get[checksum].get("type") == "sha256"
    if not os.path.basename(name).startswith(get["checksum"].text):
        raise SystemExit(f"{name} is not called after its content")
    int(get["timestamp"].text)
    return ET.fromstring(text)


def files(element):
    found = [e for e in element if local(e.tag) == "file"]
    return [[e.text or "", e.get("type", "file")] for e in found]


def primary(package):
    out = {}
    for child in package:
        tag = local(child.tag)
        if tag == "format":
            for e in child:
                tag = local(e.tag)
                if len(e):
                    out[tag] = [dict(sorted(entry.attrib.items())) for entry in e]
                elif tag != "file":
                    out[tag] = dict(sorted(e.attrib.items())) or (e.text or "")
            out["files"] = files(child)
        elif child.attrib:
            out[tag] = dict(sorted(child.attrib.items()))
            if child.text and child.text.strip():
                out[tag]["text"] = child.text
        else:
            out[tag] = child.text or ""
    return out


def main():
    root = sys.argv[1]
    repomd = ET.parse(os.path.join(root, "repodata/repomd.xml")).getroot()
    documents = {}
    for data in repomd:
        if local(data.tag) == "data" and data.get("type") in ("primary", "filelists", "other"):
            documents[data.get("type")] = document(root, data)
    packages = {}
    for package in documents["primary"]:
        facts = primary(package)
        packages[facts["checksum"]["text"]] = {"primary": facts}
    for kind in ("filelists", "other"):
        for package in documents[kind]:
            one = packages[package.get("pkgid")]
            version = {k: v for k, v in package[0].attrib.items()}
            head = [package.get("name"), package.get("arch"), version]
            if kind == "filelists":
                one[kind] = {"head": head, "files": files(package)}
            else:
                entries = [[e.get("author"), e.get("date"), e.text or ""] for e in package[1:]]
                one[kind] = {"head": head, "changelogs": entries}
    for kind, root in documents.items():
        assert int(root.get("packages")) == len(root) == len(packages), kind
    json.dump({"revision": repomd[0].text, "packages": packages}, sys.stdout, indent=1, sort_keys=True)


main()
