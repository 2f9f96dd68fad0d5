#!/usr/bin/env bash
# What a group's package is to download and to install, by how its kpacks hold their kernels and how the package is
# compressed, for the table in docs/compression.md:
#   package-bytes.sh ARTIFACT-DIR ISA…      as shards/sid/sparse_lib_all gfx1100 gfx1101 gfx1102: the ISAs of one group
# KPACK: how kpacks are made, `none` (kernels as they are) or a level of zstd (a frame for each kernel); default "none 3 10 19".
# HOW: compressions of the package; default "zstd:3 zstd:3,long=27 zstd:10 zstd:10,long=27 zstd:19,long=27 xz:6".
# For each pair: size of the .deb (download), size of its content (installed), and CPU time (user and system) and peak memory of
# `gfxpack build` with one thread and of unpacking by `dpkg-deb --fsys-tarfile`. Sizes are exact; times are of one run. Prints a
# Markdown table.
# Needs: dpkg, GNU time (packages dpkg time), jq, and room for the raw kernels and the package in WORK (a temporary folder).
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for need in dpkg-deb jq /usr/bin/time; do
  command -v "$need" >/dev/null || { echo "$0: $need is missing: apt-get install dpkg jq time" >&2; exit 1; }
done
[ -n "${GFXPACK:-}" ] || cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=${GFXPACK:-$repo/target/release/gfxpack}
artifact=$(realpath "$1"); shift
read -r -a kpacks <<< "${KPACK:-none 3 10 19}"
read -r -a how <<< "${HOW:-zstd:3 zstd:3,long=27 zstd:10 zstd:10,long=27 zstd:19,long=27 xz:6}"
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/shards/one"
ln -s "$artifact" "$work/shards/one/$(basename "$artifact")"
printf '%s\n' "$@" | jq -R . | jq -s '{primary_shard: "one", architecture_groups: {group: {display_name: "group", architectures: .}}}' \
  > "$work/groups.json"
name=$(basename "$artifact"); name=${name%_*}; name=${name//_/-}
export SOURCE_DATE_EPOCH=1767614400

mb() { awk -v n="$1" 'BEGIN { printf "%.1f", n / 1e6 }'; }
echo "$(basename "$artifact"), a group of $*"
echo
echo "| kpacks | package | download MB | installed MB | build CPU s | peak MB | unpack CPU s | peak MB |"
echo "|---|---|---|---|---|---|---|---|"
for kpack in "${kpacks[@]}"; do
  if [ "$kpack" = none ]; then kernels=(--compression none); shown=raw
  else kernels=(--compression zstd --compression-level "$kpack"); shown="a zstd:$kpack frame each"; fi
  for h in "${how[@]}"; do
    rm -rf "$work/out"
    /usr/bin/time -o "$work/time" -f '%U %S %M' "$gfxpack" build --quiet --no-auto-deps --jobs 1 --input-shards-dir "$work/shards" \
      --config "$work/groups.json" --version 1 --release 1 --only "$name-group" --format deb "${kernels[@]}" --deb-compression "$h" \
      --json --output-dir "$work/out" > "$work/report"
    read -r u s m < "$work/time"
    deb=$(echo "$work"/out/*.deb)
    /usr/bin/time -o "$work/time" -f '%U %S %M' dpkg-deb --fsys-tarfile "$deb" > /dev/null
    read -r v t n < "$work/time"
    echo "| $shown | $h | $(mb "$(stat -c %s "$deb")") | $(mb "$(jq '.packages[0].installed_size' "$work/report")")" \
      "| $(awk -v a="$u" -v b="$s" 'BEGIN { printf "%.1f", a + b }') | $((m / 1024))" \
      "| $(awk -v a="$v" -v b="$t" 'BEGIN { printf "%.1f", a + b }') | $((n / 1024)) |"
  done
done
