#!/usr/bin/env bash
# How long `gfxpack split` takes beside what its work costs at the least, in one run:
#   split.sh ARTIFACT-DIR…        artifacts with fat binaries, as shards/sid/sparse_lib_all
# For each: wall time of the split at level 3, of `zstd -3 -T2` over the same device code plus a copy of the
# host part, and their ratio; the same with `--compression none` beside `cp` of the whole artifact; and the
# split's peak memory. Warm cache; the least of RUNS (3) runs each. Prints a Markdown table.
# Needs: zstd, GNU time (packages zstd, time), and room for twice the artifact in WORK (a temporary folder).
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -gt 0 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for need in zstd /usr/bin/time; do
  command -v "$need" >/dev/null || { echo "$0: $need is missing: apt-get install zstd time" >&2; exit 1; }
done
cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=$repo/target/release/gfxpack
runs=${RUNS:-3}
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

# least NAME COMMAND…: the least wall time of some runs of it, each into an empty $work/out
least() {
  local best= i t
  for ((i = 0; i < runs; i++)); do
    rm -rf "$work/out"; mkdir "$work/out"
    /usr/bin/time -o "$work/time" -f '%e %M' "$@" >/dev/null
    read -r t rss < "$work/time"
    if [ -z "$best" ] || awk -v a="$t" -v b="$best" 'BEGIN { exit !(a < b) }'; then best=$t; fi
  done
  echo "$best $rss"
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b > 0 ? a / b : 0) }'; }

echo "| artifact | MB | split s | zstd -3 -T2 + cp s | ratio | split, none s | cp s | ratio | peak MB |"
echo "|---|---|---|---|---|---|---|---|---|"
for artifact in "$@"; do
  name=$(basename "$artifact"); prefix=${name%_*}
  args=(--artifact-dir "$artifact" --artifact-prefix "$prefix" --quiet)
  # The device code and the host part as they are, and everything in the cache.
  rm -rf "$work/raw"; "$gfxpack" split "${args[@]}" --compression none --output-dir "$work/raw"
  find "$work/raw" -type f -name '*.kpack' -exec cat {} + > "$work/device"
  find "$work/raw" -type f -name '*.kpack' -delete
  export gfxpack work artifact
  read -r split rss < <(least "$gfxpack" split "${args[@]}" --output-dir "$work/out/split")
  read -r floor _ < <(least bash -c 'zstd -q -3 -T2 "$work/device" -o "$work/out/device.zst" && cp -a "$work/raw" "$work/out/host"')
  read -r none _ < <(least "$gfxpack" split "${args[@]}" --compression none --output-dir "$work/out/split")
  read -r cp _ < <(least cp -a "$artifact" "$work/out/copy")
  mb=$(du -sm --apparent-size "$artifact" | cut -f1)
  echo "| $name | $mb | $split | $floor | $(ratio "$split" "$floor") | $none | $cp | $(ratio "$none" "$cp") | $((rss / 1024)) |"
done
