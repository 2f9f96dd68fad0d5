#!/usr/bin/env bash
# What compressions of packages give, for the table in docs/compression.md:
#   compress.sh DIR…              trees as packages hold them: a kernel database, a library, kpack archives (not in a folder
#                                 .kpack: there they would belong to binaries that are not in the tree)
# For each tree and each of HOW: the size of the .deb, the CPU time and the peak memory of writing it with one thread. Prints a
# Markdown table. Needs: GNU time (package time); in WORK, on the file system of the trees, room for one package.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -gt 0 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
command -v /usr/bin/time >/dev/null || { echo "$0: /usr/bin/time is missing: apt-get install time" >&2; exit 1; }
[ -n "${GFXPACK:-}" ] || cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=${GFXPACK:-$repo/target/release/gfxpack}
read -r -a how <<< "${HOW:-none zstd:1 zstd:3 zstd:6 zstd:10 zstd:3,long=27 zstd:10,long=27 zstd:19 zstd:19,long=27 xz:6}"
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
cat > "$work/groups.json" <<'J'
{ "primary_shard": "a", "architecture_groups": { "gfx90X": { "display_name": "g", "architectures": ["gfx90a"] } } }
J
echo "| tree | compression | MB | CPU s | peak MB |"
echo "|---|---|---|---|---|"
for tree in "$@"; do
  artifact=$work/artifacts/bench_lib_generic
  rm -rf "$work/artifacts"; mkdir -p "$artifact"
  cp -al "$tree" "$artifact/p"
  echo p > "$artifact/artifact_manifest.txt"
  for h in "${how[@]}"; do
    rm -rf "$work/out"
    /usr/bin/time -o "$work/time" -f '%U %S %M' "$gfxpack" package --quiet --no-auto-deps --jobs 1 --artifacts-dir "$work/artifacts" \
      --config "$work/groups.json" --version 1 --release 1 --format deb --deb-compression "$h" --output-dir "$work/out"
    read -r u s m < "$work/time"
    awk -v t="$(basename "$tree")" -v h="$h" -v b="$(stat -c %s "$work"/out/*.deb)" -v u="$u" -v s="$s" -v m="$m" \
      'BEGIN { printf "| %s | %s | %.1f | %.1f | %d |\n", t, h, b / 1e6, u + s, m / 1024 }'
  done
done
