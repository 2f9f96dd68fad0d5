#!/usr/bin/env bash
# How long `gfxpack build` takes, what memory and disk, beside what the same bytes cost at the least and the tools that write packages:
#   build.sh SHARD-DIR [SVG]      a shard with artifacts as directories, as shards/sid; the plot goes into SVG
# Three tables, in Markdown:
# 1. `build` to both formats at zstd -3 with two threads and one, beside (a) `cp -r` of the input and (b) `tar | zstd -3 -T2` of it;
#    and package writing alone, of what `split` and `recombine` make, beside (c) `dpkg-deb -Zzstd -z3` and `rpmbuild` with `w3.zstdio`
#    of the same trees. Extra disk is what stood in the output's folder at most beyond what was there at the end.
# 2. The targets, as ratios of that run.
# 3. Time and peak memory from 0.1 GB to the size of the set: one artifact (LINEAR; the smallest over 100 MB) 1, 2, 4, … times.
# They take turns, RUNS (2) times; the least wall and CPU time and the largest peak of each count. Warm cache: what fits of the input
# should, and nothing else should run. Without (c) with PACK=no.
# Needs: dpkg, rpm, tar, zstd, python3 (packages dpkg rpm tar zstd python3), two cores. Disk: in WORK (a temporary folder), on the file
# system of the input, whose files are linked, room for a copy of the input (a) or, later, for the split trees and all packages of one
# format; each is removed before the next.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for need in dpkg-deb rpmbuild tar zstd python3; do
  command -v "$need" >/dev/null || { echo "$0: $need is missing: apt-get install dpkg rpm tar zstd python3" >&2; exit 1; }
done
[ -n "${GFXPACK:-}" ] || cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=$(realpath "${GFXPACK:-$repo/target/release/gfxpack}")
shard=$(realpath "$1") svg=${2:-} runs=${RUNS:-2} bench=$repo/tests/bench
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=1767614400 LC_ALL=C
mkdir -p "$work/shards" "$work/out"
ln -s "$shard" "$work/shards/one"
# Links to artifacts are as good as artifacts.
mapfile -d '' artifacts < <(find -H "$shard" -mindepth 1 -maxdepth 1 -name '*_*_*' -print0 | xargs -0 realpath -z | sort -z)
"$gfxpack" discover --quiet "$work/shards" --write-config "$work/groups.json" > /dev/null
how="--config $work/groups.json --version 1 --release 1 --no-auto-deps --quiet --deb-compression zstd:3 --rpm-compression zstd:3"

declare -A wall cpu rss extra left written
max() { awk -v a="$1" -v b="${2:-0}" 'BEGIN { print (a + 0 > b + 0 ? a : b) }'; }
min() { awk -v a="$1" -v b="${2:-$1}" 'BEGIN { print (a + 0 < b + 0 ? a : b) }'; }
calc() { awk "BEGIN { printf \"%.2f\", $1 }"; }
# measure NAME COMMAND: a command for bash that writes into $work/out
measure() {
  local name=$1 w c m d l b; shift
  rm -rf "$work/out"; mkdir "$work/out"
  read -r w c m d l b < <(python3 "$bench/measure.py" "$work/out" bash -c "set -euo pipefail; $*" || echo failed)
  [ "$w" != failed ] || { echo "$0: $name failed: $*" >&2; exit 1; }
  wall[$name]=$(min "$w" "${wall[$name]:-}"); cpu[$name]=$(min "$c" "${cpu[$name]:-}")
  rss[$name]=$(max "$m" "${rss[$name]:-}"); extra[$name]=$(max "$(calc "$d - $l")" "${extra[$name]:-}")
  left[$name]=$l; written[$name]=$b
  # The next one should not wait for this one's pages.
  rm -rf "$work/out"; sync -f "$work"
}
build() { echo "'$gfxpack' build --input-shards-dir '$work/shards' $how --jobs $1 --output-dir '$work/out/p'"; }

sum() { find "$@" -type f -printf '%s\n' | awk '{ n += $1 } END { printf "%.0f\n", n }'; }
bytes=$(sum "${artifacts[@]}")
find "${artifacts[@]}" -type f -exec cat {} + > /dev/null
for ((run = 0; run < runs; run++)); do
  measure cp "cp -r ${artifacts[*]@Q} '$work/out/'"
  measure tar "tar -P -cf - ${artifacts[*]@Q} | zstd -q -3 -T2 -o '$work/out/set.tar.zst'"
  measure build2 "$(build 2)"
  measure build1 "$(build 1)"
done
rows=(cp tar build2 build1)
declare -A shown=([cp]="(a) cp -r" [tar]="(b) tar, zstd -3 -T2" [build2]="gfxpack build, .deb and .rpm" [build1]="the same, one thread"
  [package]="gfxpack package, .deb and .rpm" [pack]="(c) dpkg-deb -Zzstd -z3, rpmbuild w3.zstdio")

if [ "${PACK:-yes}" != no ]; then
  "$gfxpack" split --quiet --batch-artifact-parent-dir "$shard" --kpack-scope prefix --output-dir "$work/split/one"
  "$gfxpack" recombine --quiet --input-shards-dir "$work/split" --config "$work/groups.json" --output-dir "$work/recombined"
  rm -rf "$work/split"   # what recombining took is linked
  mkdir "$work/trees"
  for artifact in "$work/recombined"/*; do
    name=$(basename "$artifact" | tr '_:+' '----' | tr '[:upper:]' '[:lower:]')
    tree=$work/trees/$name
    mkdir -p "$tree/opt/rocm"
    while read -r prefix; do
      [ ! -d "$artifact/$prefix" ] || cp -al "$artifact/$prefix/." "$tree/opt/rocm/"
    done < "$artifact/artifact_manifest.txt"
    mkdir "$tree/DEBIAN"
    printf 'Package: %s\nVersion: 1-1\nArchitecture: amd64\nMaintainer: A <a@example.org>\nDescription: bench\n' "$name" > "$tree/DEBIAN/control"
    printf 'Name: %s\nVersion: 1\nRelease: 1\nSummary: bench\nLicense: MIT\nAutoReqProv: no\n%%description\nbench\n%%install\ncp -al %s/opt %%{buildroot}/opt\n%%files\n/opt/rocm\n' \
      "$name" "$tree" > "$work/trees/$name.spec"
  done
  # Two rpmbuild at once fail where both make one of these.
  rpmdirs="mkdir -p '$work/out'/{BUILD,BUILDROOT,SOURCES,SPECS,SRPMS,RPMS/x86_64}"
  debs="find '$work/trees' -mindepth 1 -maxdepth 1 -type d -print0 | xargs -0 -P2 -I{} dpkg-deb -Zzstd -z3 --root-owner-group -b {} '$work/out' > /dev/null"
  rpms="find '$work/trees' -name '*.spec' -print0 | xargs -0 -n1 -P2 rpmbuild -bb --quiet --nodebuginfo --define '_topdir $work/out' --define '_binary_payload w3.zstdio' --define '__os_install_post %{nil}' --define '_build_id_links none' > '$work/rpmbuild.log' 2>&1 || { tail -20 '$work/rpmbuild.log' >&2; exit 1; }"
  for ((run = 0; run < runs; run++)); do
    measure package "'$gfxpack' package --artifacts-dir '$work/recombined' $how --jobs 2 --output-dir '$work/out/p'"
    measure pack "$rpmdirs; $debs; $rpms"
  done
  rows+=(package pack)
  rm -rf "$work/trees" "$work/recombined"
fi

echo "$(calc "$bytes / 1e9") GB in $(find "${artifacts[@]}" -type f | wc -l) files, $(nproc) cores, $runs runs"
echo
echo "| | wall s | CPU s | peak MB | MB at the end | extra disk MB | written MB |"
echo "|---|---|---|---|---|---|---|"
for name in "${rows[@]}"; do
  printf '| %s | %.1f | %.1f | %.0f | %.0f | %.0f | %.0f |\n' "${shown[$name]}" "${wall[$name]}" "${cpu[$name]}" "${rss[$name]}" \
    "${left[$name]}" "${extra[$name]}" "${written[$name]}"
done
echo
echo "| target | found |"
echo "|---|---|"
echo "| build of both formats ≤ 2 × (b) | $(calc "${wall[build2]} / ${wall[tar]}") × (CPU $(calc "${cpu[build2]} / ${cpu[tar]}") ×) |"
echo "| the same beside (a) | $(calc "${wall[build2]} / ${wall[cp]}") × |"
[ -z "${wall[pack]:-}" ] || echo "| package writing alone ≥ 3 times as fast as (c), both formats together | $(calc "${wall[pack]} / ${wall[package]}") times (CPU $(calc "${cpu[pack]} / ${cpu[package]}")) |"
echo "| two threads ≥ 1.8 times as fast as one | $(calc "${wall[build1]} / ${wall[build2]}") times |"
echo "| extra disk ≤ the largest package | $(calc "${extra[build2]}") MB |"
echo

# The same work, more and more of it.
linear=${LINEAR:-}
[ -n "$linear" ] || linear=$(du -sm "${artifacts[@]}" | sort -n | awk -F'\t' '$1 >= 100 { print $2; exit }')
[ -n "$linear" ] || linear=$(du -sm "${artifacts[@]}" | sort -n | tail -1 | cut -f2)
linear=$(realpath "$linear"); name=$(basename "$linear"); rest=${name#*_}
one=$(sum "$linear")
echo "| times ${name} | GB | wall s | s / GB | CPU s | peak MB |"
echo "|---|---|---|---|---|---|"
: > "$work/points"
for ((times = 1; times == 1 || times * one <= bytes * 11 / 10; times *= 2)); do
  rm -rf "$work/shards"; mkdir -p "$work/shards/one"
  for ((nth = 0; nth < times; nth++)); do
    # Each in a folder of its own: a path can be in one package only.
    copy=$work/shards/one/a${nth}_$rest
    mkdir "$copy"; cp "$linear/artifact_manifest.txt" "$copy/"
    while read -r prefix; do
      mkdir -p "$copy/$prefix"
      [ ! -d "$linear/$prefix" ] || cp -al "$linear/$prefix" "$copy/$prefix/copy$nth"
    done < "$linear/artifact_manifest.txt"
  done
  for ((run = 0; run < runs; run++)); do measure "linear$times" "$(build 2)"; done
  gb=$(calc "$times * $one / 1e9")
  printf '| %s | %s | %.2f | %s | %.2f | %.0f |\n' "$times" "$gb" "${wall[linear$times]}" \
    "$(calc "${wall[linear$times]} / ($times * $one / 1e9)")" "${cpu[linear$times]}" "${rss[linear$times]}"
  echo "$(awk -v n="$times" -v b="$one" 'BEGIN { print n * b / 1e9 }') ${wall[linear$times]}" >> "$work/points"
done
[ -z "$svg" ] || python3 "$bench/plot.py" "$work/points" > "$svg"
