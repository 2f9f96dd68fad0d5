#!/usr/bin/env bash
# How often a build reads its input, told by strace:
#   reads.sh SHARDS CONFIG [ARGUMENT…]      ARGUMENTs go to `gfxpack build`
# Sums what read, pread64 and copy_file_range return on files of the input, for planning alone (--dry-run) and for the whole run, and
# prints it beside the size of the input: what is above 100 % was read more than once. AT_MOST, a number of percent, makes it
# fail where the whole run reads more. WORK is a temporary folder with room for the packages.
# Needs: strace, awk.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -ge 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
command -v strace >/dev/null || { echo "$0: strace is missing: apt-get install strace" >&2; exit 1; }
[ -n "${GFXPACK:-}" ] || cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=${GFXPACK:-$repo/target/release/gfxpack}
shards=$(realpath "$1") config=$2
shift 2
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Bytes read of files below the shards, and how many of these files there are. A call that another thread's line interrupts has its path in the
# first part and its result in the second.
count() {
  awk -v root="$shards/" '
    function path(line) { return match(line, /[0-9]+<[^>]*>/) ? substr(line, RSTART, RLENGTH) : "" }
    { pid = $1; line = $0 }
    / resumed>/ { of = waiting[pid]; delete waiting[pid] }
    !/ resumed>/ { of = path(line) }
    / <unfinished \.\.\.>$/ { waiting[pid] = of; next }
    index(of, "<" root) && match(line, /= [0-9]+$/) {
      sum += substr(line, RSTART + 2); if (!(of in seen)) { sub(/^[0-9]+/, "", of); if (!(of in files)) { files[of] = 1; n++ } }
    }
    END { printf "%.0f %d\n", sum, n }' "$work"/trace*
}
traced() {
  rm -f "$work"/trace*
  strace -f -qq -y -e trace=read,pread64,copy_file_range -o "$work/trace" "$gfxpack" build --quiet --input-shards-dir "$shards" --config "$config" \
    --version 1 --release 1 --output-dir "$work/out" "$@" > /dev/null
  count
}
size=$(find "$shards" -type f -printf '%s\n' | awk '{ sum += $1 } END { printf "%.0f", sum }')
[ "$size" -gt 0 ] || { echo "$0: no files below $shards (links are not followed)" >&2; exit 1; }
read -r plan plan_files < <(traced --dry-run "$@")
read -r all files < <(traced "$@")
percent() { awk -v a="$1" -v b="$size" 'BEGIN { printf "%.2f", 100 * a / b }'; }
echo "| | bytes | % of the input | files |"
echo "|---|---|---|---|"
echo "| input | $size | 100 | $(find "$shards" -type f | wc -l) |"
echo "| read by planning | $plan | $(percent "$plan") | $plan_files |"
echo "| read by the whole run | $all | $(percent "$all") | $files |"
if [ -n "${AT_MOST:-}" ] && awk -v a="$(percent "$all")" -v m="$AT_MOST" 'BEGIN { exit !(a > m) }'; then
  echo "$0: more than $AT_MOST % of the input was read" >&2
  exit 1
fi
