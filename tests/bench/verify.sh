#!/usr/bin/env bash
# How long `gfxpack verify` takes beside what its work costs at the least, in one run:
#   verify.sh DIR…        directories that `gfxpack split` wrote
# For each: time of the verification; of decompressing every kpack (each frame by `zstd`, two at a time) plus
# reading every other file once; and of the same with the compressed bundles among those files decompressed by
# `zstd` too (without their MD5, which verify computes). The two ratios; peak memory of verify.
# Processor time (user and system), which other work on the machine changes little, and in brackets wall time. Warm
# cache; the least of RUNS (3) runs each. Prints a Markdown table.
# Needs: zstd, python3, GNU time (packages zstd, python3, time), and room in WORK (a temporary folder) for the
# kpacks' frames.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -gt 0 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for need in zstd python3 /usr/bin/time; do
  command -v "$need" >/dev/null || { echo "$0: $need is missing: apt-get install zstd python3 time" >&2; exit 1; }
done
cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=$repo/target/release/gfxpack
runs=${RUNS:-3}
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
export work

# What is read is laid out beforehand, so that the other side spends no time on finding it: the frames of all
# kpacks, in some dozens of files of several frames each, which zstd takes as one; so too the bundles' frames.
lay_out() {
  python3 - "$1" "$work" <<'PY'
import os, struct, sys
root, work = sys.argv[1:]
plain, frames, bundles = [], [], []
for folder, _, names in os.walk(root):
    for name in names:
        path = os.path.join(folder, name)
        if os.path.islink(path):
            continue
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:4] == b"KPAK":
                file.seek(64)
                count, = struct.unpack("<I", file.read(4))
                for _ in range(count):
                    size, = struct.unpack("<I", file.read(4))
                    frames.append(file.read(size))
                continue
            if head[:4] == b"CCOB":
                header = {1: 20, 2: 24, 3: 32}[struct.unpack_from("<H", head, 4)[0]]
                file.seek(header)
                bundles.append(file.read())
        plain.append(path)
for kind, streams in ("kernels", frames), ("bundles", bundles):
    for i in range(min(32, len(streams))):
        with open(f"{work}/{kind}-{i:02}.zst", "wb") as out:
            out.writelines(streams[i::32])
with open(f"{work}/plain", "wb") as out:
    out.writelines(os.fsencode(path) + b"\0" for path in plain)
PY
}

# least COMMAND…: of some runs of it the least processor time with its wall time, and the peak memory of the last.
least() {
  local best= i wall cpu rss user system
  for ((i = 0; i < runs; i++)); do
    /usr/bin/time -o "$work/time" -f '%e %U %S %M' "$@" >/dev/null
    read -r wall user system rss < "$work/time"
    cpu=$(awk -v a="$user" -v b="$system" 'BEGIN { printf "%.2f", a + b }')
    if [ -z "$best" ] || awk -v a="$cpu" -v b="${best% *}" 'BEGIN { exit !(a < b) }'; then best="$cpu $wall"; fi
  done
  echo "$best $rss"
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b > 0 ? a / b : 0) }'; }

# One list of work for two processes, so that both cores are busy to the end.
read='xargs -0 -r -n64 -P2 cat < "$work/plain" >/dev/null'
floor='find "$work" -name "kernels-*.zst" -print0 | xargs -0 -r -n1 -P2 zstd -q -d -c >/dev/null; '$read
all_content='find "$work" -name "*-*.zst" -print0 | xargs -0 -r -n1 -P2 zstd -q -d -c >/dev/null; '$read

echo "| split | MB | verify s | kpacks + files s | ratio | with bundles' content s | ratio | peak MB |"
echo "|---|---|---|---|---|---|---|---|"
for dir in "$@"; do
  rm -f "$work"/*.zst; lay_out "$dir"
  "$gfxpack" verify --artifacts-dir "$dir" --quiet   # everything in the cache, and nothing found
  read -r verify v_wall rss < <(least "$gfxpack" verify --artifacts-dir "$dir" --quiet)
  read -r least_work l_wall _ < <(least bash -c "$floor")
  read -r content c_wall _ < <(least bash -c "$all_content")
  mb=$(du -sm --apparent-size "$dir" | cut -f1)
  echo "| $(basename "$dir") | $mb | $verify ($v_wall) | $least_work ($l_wall) | $(ratio "$verify" "$least_work") | $content ($c_wall) | $(ratio "$verify" "$content") | $((rss / 1024)) |"
done
