#!/usr/bin/env bash
# How long `gfxpack split` takes beside what its work costs at the least, in one run:
#   split.sh ARTIFACT-DIR…        artifacts with fat binaries, as shards/sid/sparse_lib_all
# For each: wall time of the split at level 3, of `zstd -3 -T2` over the same device code plus a copy of the
# host part, and their ratio; the same with `--compression none` beside `cp` of the whole artifact; the
# split's and zstd's CPU time (which other work on the machine disturbs less); and the split's peak memory.
# Warm cache; the runs alternate, and the least of RUNS (3) counts. Prints a Markdown table.
# compress-bundles.py makes a library with compressed bundles of one with plain ones.
# A command in BEFORE is put before each, as BEFORE="chrt -f 10", which keeps other work out (as root).
# Needs: zstd, GNU time (packages zstd, time), and room for twice the artifact in WORK (a temporary folder).
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -gt 0 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for need in zstd /usr/bin/time; do
  command -v "$need" >/dev/null || { echo "$0: $need is missing: apt-get install zstd time" >&2; exit 1; }
done
cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=$repo/target/release/gfxpack
runs=${RUNS:-3}
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

# timed NAME COMMAND…: runs it into an empty $work/out and keeps its least wall and CPU time and its peak memory
declare -A wall cpu peak
timed() {
  local name=$1 t u sys rss; shift
  rm -rf "$work/out"; mkdir "$work/out"
  # shellcheck disable=SC2086 # BEFORE is a command with arguments
  ${BEFORE:-} /usr/bin/time -o "$work/time" -f '%e %U %S %M' "$@" >/dev/null
  read -r t u sys rss < "$work/time"
  u=$(awk -v a="$u" -v b="$sys" 'BEGIN { printf "%.2f", a + b }')
  wall[$name]=$(least "$t" "${wall[$name]:-}"); cpu[$name]=$(least "$u" "${cpu[$name]:-}")
  [ "$rss" -lt "${peak[$name]:-0}" ] || peak[$name]=$rss
}
least() { awk -v a="$1" -v b="${2:-$1}" 'BEGIN { print (a + 0 < b + 0 ? a : b) }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b > 0 ? a / b : 0) }'; }

echo "| artifact | MB | split s | zstd -3 -T2 + cp s | ratio | CPU s: split | zstd + cp | ratio | split, none s | cp s | ratio | peak MB | none |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
for artifact in "$@"; do
  name=$(basename "$artifact"); prefix=${name%_*}
  args=(--artifact-dir "$artifact" --artifact-prefix "$prefix" --quiet)
  # The device code and the host part as they are, and everything in the cache.
  rm -rf "$work/raw"; "$gfxpack" split "${args[@]}" --compression none --output-dir "$work/raw"
  find "$work/raw" -type f -name '*.kpack' -exec cat {} + > "$work/device"
  find "$work/raw" -type f -name '*.kpack' -delete
  export work
  wall=() cpu=() peak=()
  for ((i = 0; i < runs; i++)); do
    timed split "$gfxpack" split "${args[@]}" --output-dir "$work/out/split"
    timed floor bash -c 'zstd -q -3 -T2 "$work/device" -o "$work/out/device.zst" && cp -a "$work/raw" "$work/out/host"'
    timed none "$gfxpack" split "${args[@]}" --compression none --output-dir "$work/out/split"
    timed cp cp -a "$artifact" "$work/out/copy"
  done
  mb=$(du -sm --apparent-size "$artifact" | cut -f1)
  echo "| $name | $mb | ${wall[split]} | ${wall[floor]} | $(ratio "${wall[split]}" "${wall[floor]}")" \
    "| ${cpu[split]} | ${cpu[floor]} | $(ratio "${cpu[split]}" "${cpu[floor]}")" \
    "| ${wall[none]} | ${wall[cp]} | $(ratio "${wall[none]}" "${wall[cp]}")" \
    "| $((peak[split] / 1024)) | $((peak[none] / 1024)) |"
done
