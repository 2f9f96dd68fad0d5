#!/usr/bin/env bash
# What the cache is worth, in one run:
#   cache.sh SHARDS CONFIG [ARGUMENT…]      ARGUMENTs go to `gfxpack build`
# Builds a copy of the shards without a cache, with an empty one, again, under a new version and date as each night has them, with some
# kernels changed (CHANGED: files below SHARDS, in which a bit of the last code object is flipped), and after all files were copied anew (other
# times and inodes). That outputs are the same is checked. RUNS (2) is how often; the least counts. WORK is a temporary folder with room for the
# input twice, the packages three times, and the cache. Prints a Markdown table.
# Needs: GNU time, python3.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for need in /usr/bin/time python3; do
  command -v "$need" >/dev/null || { echo "$0: $need is missing: apt-get install time python3" >&2; exit 1; }
done
[ -n "${GFXPACK:-}" ] || cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=${GFXPACK:-$repo/target/release/gfxpack}
config=$2
runs=${RUNS:-2}
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
cp -a "$1" "$work/shards"
shift 2
sleep 4 # Until files may be taken for unchanged.

build() { # VERSION DATE ARGUMENT…
  local version=$1 date=$2
  shift 2
  rm -rf "$work/out"
  SOURCE_DATE_EPOCH=$date /usr/bin/time -o "$work/time" -f '%e %U %S %M' "$gfxpack" build --quiet --input-shards-dir "$work/shards" \
    --config "$config" --version "$version" --release 1 --output-dir "$work/out" "$@"
}
least() { awk -v a="$1" -v b="${2:-}" 'BEGIN { print (b == "" || a < b) ? a : b }'; }
names=() walls=() cpus=() sizes=() same=()
note() { # NAME: of the last build; a second time under one name, the least counts.
  local e u s m cpu i
  read -r e u s m < "$work/time"
  cpu=$(awk -v u="$u" -v s="$s" 'BEGIN { printf "%.2f", u + s }')
  for i in "${!names[@]}"; do
    if [ "${names[i]}" = "$1" ]; then
      walls[i]=$(least "$e" "${walls[i]}") cpus[i]=$(least "$cpu" "${cpus[i]}")
      return
    fi
  done
  names+=("$1") walls+=("$e") cpus+=("$cpu")
  sizes+=("$(du -sm --apparent-size "$work/cache" 2>/dev/null | cut -f1 || true)")
}
# Flips a bit in code of every library and program named, in place.
change() {
  python3 - "$@" <<'P'
import sys
for path in sys.argv[1:]:
    with open(path, 'r+b') as f:
        data = f.read()
        at = data.rfind(b'\x7fELF') + 0x3f0
        f.seek(at); f.write(bytes([data[at] ^ 1]))
P
}
find "$work/shards" -type f -exec cat {} + > /dev/null
cached=(--cache "$work/cache" --cache-size 1TiB)
night=1767614400
for ((run = 0; run < runs; run++)); do
  rm -rf "$work/cache"
  build 1 $night "$@"; note "without a cache"
  rm -rf "$work/expected"; mv "$work/out" "$work/expected"
  build 1 $night "${cached[@]}" "$@"; note "an empty cache"; diff -r "$work/expected" "$work/out"
  build 1 $night "${cached[@]}" "$@"; note "again, nothing changed"; diff -r "$work/expected" "$work/out"
  build $((run + 2)) $((night + 86400 * (run + 1))) "${cached[@]}" "$@"; note "another version and date"
  if [ -n "${CHANGED:-}" ]; then
    # shellcheck disable=SC2086
    (cd "$work/shards" && change $CHANGED)
    build $((run + 20)) $((night + 86400 * (run + 20))) "${cached[@]}" "$@"; note "some kernels changed, another version and date"
    rm -rf "$work/changed"; mv "$work/out" "$work/changed"
    build $((run + 20)) $((night + 86400 * (run + 20))) "$@"; diff -r "$work/changed" "$work/out"
    rm -rf "$work/changed"
  fi
  mv "$work/shards" "$work/before"; cp -a "$work/before" "$work/shards"; rm -rf "$work/before"
  build $((run + 40)) $((night + 86400 * (run + 40))) "${cached[@]}" "$@"; note "all files copied anew, another version and date"
done
echo "$(du -sm --apparent-size "$work/shards" | cut -f1) MB of input, $(du -sm --apparent-size "$work/expected" | cut -f1) MB of packages, $(nproc) cores, $runs runs"
echo
echo "| | wall s | × without | CPU s | × without | cache MB |"
echo "|---|---|---|---|---|---|"
for i in "${!names[@]}"; do
  awk -v n="${names[i]}" -v w="${walls[i]}" -v w0="${walls[0]}" -v c="${cpus[i]}" -v c0="${cpus[0]}" -v s="${sizes[i]:-}" \
    'BEGIN { printf "| %s | %.1f | %.2f | %.1f | %.2f | %s |\n", n, w, w / w0, c, c / c0, s }'
done
