#!/usr/bin/env bash
# Time and bytes of each node of a plan, for docs/scaling.md:
#   nodes.sh SHARDS-DIR NODES.tsv      a directory of shards; the table of nodes is written
# Plans the packages with `gfxpack plan` (groups by family, as `gfxpack discover` drafts them; CONFIG and PACKAGES for others)
# and makes them one after the other, needs first, each with JOBS (2) threads. Packages are removed as it goes: WORK (a temporary
# folder) needs room for the largest one. schedule.py shares the nodes out to workers.
# The table: node, what it needs, input bytes (those that it reads), output bytes (its packages), wall seconds, CPU seconds, peak
# memory in KiB; first the line of the planning itself.
# Needs: GNU time, jq (packages time jq).
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -eq 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for need in jq /usr/bin/time; do
  command -v "$need" >/dev/null || { echo "$0: $need is missing: apt-get install time jq" >&2; exit 1; }
done
[ -n "${GFXPACK:-}" ] || cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=$(realpath "${GFXPACK:-$repo/target/release/gfxpack}")
shards=$(realpath "$1") table=$(realpath "$2")
config=${CONFIG:+$(realpath "$CONFIG")} packages=()
[ -z "${PACKAGES:-}" ] || packages=(--packages "$(realpath "$PACKAGES")")
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
export SOURCE_DATE_EPOCH=1767614400
if [ -z "$config" ]; then
  config=groups.json
  "$gfxpack" discover --quiet "$shards" --write-config "$config" > /dev/null
fi

timed() { /usr/bin/time -o time -f '%e %U %S %M' "$@"; }
figures() { awk '{ printf "%s\t%.2f\t%s", $1, $2 + $3, $4 }' time; }
timed "$gfxpack" plan --quiet --json --no-auto-deps --input-shards-dir "$shards" --config "$config" "${packages[@]}" \
  --version 1 --release 1 --output-dir out --ninja build.ninja > plan.json
{
  printf 'node\tneeds\tinput bytes\toutput bytes\twall s\tCPU s\tpeak KiB\n'
  printf '(plan)\t\t0\t%s\t%s\n' "$(du -sb out.plans | cut -f1)" "$(figures)"
} > "$table"
jq -r '.nodes | sort_by([(.needs | length > 0), .name])[].name' plan.json > names
while read -r name; do
  node=$(jq --arg name "$name" '.nodes[] | select(.name == $name)' plan.json)
  # What it reads is in the cache, as far as it fits: disks differ.
  jq -j '.inputs[] | . + "\u0000"' <<< "$node" | xargs -0 -r cat > /dev/null
  timed "$gfxpack" make --quiet --jobs "${JOBS:-2}" --output-dir out "out.plans/$name.plan"
  printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$(jq -r '.needs | join(",")' <<< "$node")" "$(jq -r .bytes <<< "$node")" \
    "$(find out -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }')" "$(figures)" >> "$table"
  find out -type f -delete
done < names
