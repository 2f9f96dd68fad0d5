#!/usr/bin/env bash
# How long `gfxpack build` takes from shards to both formats, beside what its work costs at the least, in one run:
#   build.sh SHARD-DIR…           shards, as shards/sid
# Measured are `build --jobs 1` and `--jobs 2`, both formats at a time; the same as two runs, one for each format; `cp -r` of the
# input, and `tar | zstd -3 -T2` of it. They take turns, RUNS (3) times; the least of each counts. CPU time is user and system.
# With COLD=1 the input is dropped from the page cache before each: then what was read from disk counts. BASE=FILE measures another
# gfxpack as well, as one from before a change. BEFORE="chrt -f 10" goes before each command, where others use the machine.
# ARGS is more for `build`, as "--memory 256MiB". Prints a Markdown table.
# Needs: tar, zstd, GNU time (packages tar zstd time), two cores, and in WORK (a temporary folder) room for a copy of the input.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for need in tar zstd /usr/bin/time; do
  command -v "$need" >/dev/null || { echo "$0: $need is missing: apt-get install tar zstd time" >&2; exit 1; }
done
[ -n "${GFXPACK:-}" ] || cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=${GFXPACK:-$repo/target/release/gfxpack}
runs=${RUNS:-3}
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=1767614400 work gfxpack

mkdir "$work/shards"
for shard in "$@"; do ln -s "$(realpath "$shard")" "$work/shards/"; done
"$gfxpack" --quiet discover "$work/shards" --write-config "$work/groups.json" --primary-shard "$(basename "$1")"
build() { # PROGRAM FORMATS OUT JOBS
  "$1" build --quiet --no-auto-deps --input-shards-dir "$work/shards" --config "$work/groups.json" --version 1 --release 1 \
    --format "$2" --output-dir "$work/out/$3" --jobs "$4" ${ARGS:-}
}
twice() { build "$gfxpack" deb a 2; build "$gfxpack" rpm b 2; }
copy() { cp -rL "$work/shards" "$work/out/copy"; }
tarz() { tar -C "$work/shards" -chf - . | zstd -q -3 -T2 -o "$work/out/all.tar.zst"; }
cold() { find -L "$work/shards" -type f -exec sh -c 'for f; do dd if="$f" iflag=nocache count=0 status=none; done' sh {} +; }
export -f build twice copy tarz

names=("tar, zstd -3 -T2" "cp -r" "build --jobs 2" "build --jobs 1" "one run for each format, --jobs 2")
commands=(tarz copy 'build "$gfxpack" deb,rpm a 2' 'build "$gfxpack" deb,rpm a 1' twice)
if [ -n "${BASE:-}" ]; then
  names+=("BASE build --jobs 2" "BASE build --jobs 1")
  commands+=('build "$BASE" deb,rpm a 2' 'build "$BASE" deb,rpm a 1')
  export BASE
fi
least() { awk -v a="$1" -v b="${2:-}" 'BEGIN { print (b == "" || a < b) ? a : b }'; }
find -L "$work/shards" -type f -exec cat {} + > /dev/null
declare -a wall cpu rss in size
for ((run = 0; run < runs; run++)); do
  for i in "${!commands[@]}"; do
    rm -rf "$work/out"; mkdir "$work/out"
    [ -z "${COLD:-}" ] || { sync; cold; }
    ${BEFORE:-} /usr/bin/time -o "$work/time" -f '%e %U %S %M %I' bash -c "set -o pipefail; ${commands[i]}"
    read -r e u s m from < "$work/time"
    wall[i]=$(least "$e" "${wall[i]:-}")
    cpu[i]=$(least "$(awk -v u="$u" -v s="$s" 'BEGIN { print u + s }')" "${cpu[i]:-}")
    rss[i]=$((m / 1024))
    in[i]=$((from / 2048))
    size[i]=$(du -sm --apparent-size "$work/out" | cut -f1)
  done
done
echo "$(du -smL --apparent-size "$work/shards" | cut -f1) MB in $(find -L "$work/shards" -type f | wc -l) files, $(nproc) cores, $runs runs"
echo
echo "| | wall s | × tar, zstd | CPU s | × tar, zstd | peak MB | MB from disk | MB written |"
echo "|---|---|---|---|---|---|---|---|"
for i in "${!commands[@]}"; do
  awk -v n="${names[i]}" -v w="${wall[i]}" -v w0="${wall[0]}" -v c="${cpu[i]}" -v c0="${cpu[0]}" -v m="${rss[i]}" -v r="${in[i]}" -v s="${size[i]}" \
    'BEGIN { printf "| %s | %.1f | %.2f | %.1f | %.2f | %d | %d | %d |\n", n, w, w / w0, c, c / c0, m, r, s }'
done
echo
awk -v one="${wall[3]}" -v two="${wall[2]}" 'BEGIN { printf "--jobs 2 is %.2f times as fast as --jobs 1\n", one / two }'
