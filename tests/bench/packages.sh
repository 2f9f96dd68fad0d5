#!/usr/bin/env bash
# How long `gfxpack package` takes beside the tools that write the same packages, in one run over one tree:
#   packages.sh ARTIFACT-DIR      an artifact, as shards/sid/blas_lib_all
# Measured are ours, .deb and .rpm, at zstd -3; `dpkg-deb -Zzstd -z3` and `rpmbuild` with `w3.zstdio`; and, as what the work
# costs at the least, `tar | zstd -3 -T2`. They take turns, RUNS (3) times, warm cache; the least of each counts, wall time and
# CPU time (user and system; on a busy machine the one to look at). Prints a Markdown table.
# Needs: dpkg, rpm, tar, zstd, GNU time (packages dpkg rpm tar zstd time), two cores, and in WORK (a temporary folder, on the
# file system of the artifact: its files are linked, not copied) room for one package at a time.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -eq 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for need in dpkg-deb rpmbuild tar zstd /usr/bin/time; do
  command -v "$need" >/dev/null || { echo "$0: $need is missing: apt-get install dpkg rpm tar zstd time" >&2; exit 1; }
done
[ -n "${GFXPACK:-}" ] || cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=${GFXPACK:-$repo/target/release/gfxpack}
runs=${RUNS:-3}
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=1767614400

# The artifact as a generic one, and what a package of it holds as a tree.
mkdir -p "$work/artifacts" "$work/tree/opt/rocm" "$work/tree/DEBIAN"
cp -al "$1" "$work/artifacts/bench_lib_generic"
while read -r prefix; do
  [ -d "$1/$prefix" ] && cp -al "$1/$prefix/." "$work/tree/opt/rocm/"
done < "$1/artifact_manifest.txt"
cat > "$work/groups.json" <<'J'
{ "primary_shard": "a", "architecture_groups": { "gfx90X": { "display_name": "g", "architectures": ["gfx90a"] } } }
J
printf 'Package: bench\nVersion: 1-1\nArchitecture: amd64\nMaintainer: A <a@example.org>\nDescription: bench\n' \
  > "$work/tree/DEBIAN/control"
cat > "$work/bench.spec" <<S
Name: bench
Version: 1
Release: 1
Summary: bench
License: MIT
AutoReqProv: no
%description
bench
%install
cp -al $work/tree/opt %{buildroot}/opt
%files
/opt/rocm
S
ours() { "$gfxpack" package --quiet --artifacts-dir "$work/artifacts" --config "$work/groups.json" --version 1 --release 1 \
  --no-auto-deps --jobs 2 --format "$1" "--$1-compression" zstd:3 --output-dir "$work/out/ours"; }
dpkg() { dpkg-deb -Zzstd -z3 --root-owner-group -b "$work/tree" "$work/out/bench.deb" >/dev/null; }
rpmb() { rpmbuild -bb --quiet --nodebuginfo --define "_topdir $work/out" --define "_binary_payload w3.zstdio" \
  --define "__os_install_post %{nil}" --define "_build_id_links none" "$work/bench.spec" >/dev/null 2>&1; }
tarz() { tar -C "$work/tree" -cf - opt | zstd -q -3 -T2 -o "$work/out/bench.tar.zst"; }
export -f ours dpkg rpmb tarz; export work gfxpack

names=("tar, zstd -3 -T2" "gfxpack .deb" "dpkg-deb -Zzstd -z3" "gfxpack .rpm" "rpmbuild, w3.zstdio")
commands=(tarz "ours deb" dpkg "ours rpm" rpmb)
least() { awk -v a="$1" -v b="${2:-}" 'BEGIN { print (b == "" || a < b) ? a : b }'; }
find "$work/tree/opt" -type f -exec cat {} + > /dev/null
declare -a wall cpu rss size
for ((run = 0; run < runs; run++)); do
  for i in "${!commands[@]}"; do
    rm -rf "$work/out"; mkdir "$work/out"
    /usr/bin/time -o "$work/time" -f '%e %U %S %M' bash -c "set -o pipefail; ${commands[i]}"
    read -r e u s m < "$work/time"
    wall[i]=$(least "$e" "${wall[i]:-}")
    cpu[i]=$(least "$(awk -v u="$u" -v s="$s" 'BEGIN { print u + s }')" "${cpu[i]:-}")
    rss[i]=$((m / 1024))
    size[i]=$(find "$work/out" \( -name '*.deb' -o -name '*.rpm' -o -name '*.zst' \) -printf '%s\n' | head -1)
  done
done
echo "$(du -sm --apparent-size "$work/tree/opt" | cut -f1) MB in $(find "$work/tree/opt" -type f | wc -l) files, $(nproc) cores, $runs runs"
echo
echo "| | wall s | × tar, zstd | CPU s | × tar, zstd | MB | peak MB |"
echo "|---|---|---|---|---|---|---|"
for i in "${!commands[@]}"; do
  awk -v n="${names[i]}" -v w="${wall[i]}" -v w0="${wall[0]}" -v c="${cpu[i]}" -v c0="${cpu[0]}" -v s="${size[i]}" -v m="${rss[i]}" \
    'BEGIN { printf "| %s | %.1f | %.2f | %.1f | %.2f | %.1f | %d |\n", n, w, w / w0, c, c / c0, s / 1e6, m }'
done
