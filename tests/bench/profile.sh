#!/usr/bin/env bash
# Where the CPU time of a split goes, as a Markdown table: the share of each group of functions.
#   profile.sh ARTIFACT-DIR [ARGUMENT OF gfxpack split]…
# Needs: perf (package linux-perf) and leave to use it (kernel.perf_event_paranoid at most 2, or root).
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -gt 0 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
command -v perf >/dev/null || { echo "$0: perf is missing: apt-get install linux-perf" >&2; exit 1; }
[ -n "${GFXPACK:-}" ] || cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=${GFXPACK:-$repo/target/release/gfxpack}
artifact=$1; shift
name=$(basename "$artifact")
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-profile.XXXXXX")
trap 'rm -rf "$work"' EXIT
for run in warm measured; do
  rm -rf "$work/out"
  perf record -q -F 4000 -o "$work/$run" "$gfxpack" split --quiet --artifact-dir "$artifact" \
    --artifact-prefix "${name%_*}" --output-dir "$work/out" "$@" >/dev/null
done
perf report -q -i "$work/measured" --no-children --percent-limit 0 --sort dso,symbol 2>/dev/null | awk -v artifact="$name $*" '
  function group(dso, symbol) {
    if (dso ~ /kernel/) return symbol ~ /copy|memcpy|rep_movs/ ? "kernel: copying to and from files" : "kernel: page faults, files, the rest"
    if (symbol ~ /md5/) return "MD5 of compressed bundles"
    if (symbol ~ /XXH/) return "checksums in frames (xxHash)"
    if (symbol ~ /blake3|sha256/) return "digests (BLAKE3, SHA-256)"
    if (symbol ~ /decompress|Decompress|DStream|readDTable|ReadDTable|HUF_readStats|FSE_readNCount|inflate/) return "decompressing"
    if (symbol ~ /ZSTD|HUF|FSE|HIST/) return "compressing (zstd)"
    if (symbol ~ /mem(move|cpy|set)/) return "copying in memory"
    return "the rest: planning, archives, ld.so"
  }
  $1 ~ /%$/ { share[group($2, $0)] += $1 }
  END {
    print "| " artifact " | % of CPU time |"; print "|---|---|"
    for (g in share) if (share[g] >= 0.05) printf "| %s | %.1f |\n", g, share[g] | "sort -t\"|\" -k3,3 -rn"
  }'
