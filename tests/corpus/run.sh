#!/usr/bin/env bash
# Splits real ROCm libraries and holds the result against them. Slow (minutes, and gigabytes of disk), and so
# not a part of `cargo test`.
#
#   tests/corpus/run.sh [small|all] [DIR] [-- OPTION...]     default: small, /tmp/corpus
#
# small  the artifacts of DIR/shards/bookworm and DIR/shards/wheels; all: those of every shard
# DIR    the corpus, which is only read. OPTIONs go to `gfxpack split`, as --compression none.
#
# For each artifact: `gfxpack split` under time(1); `gfxpack verify` of that, and of what `gfxpack recombine` makes of it by
# drafted groups, against the artifact, which must raise nothing, not a warning; the split trees laid over one root; check/kernels.py, which finds each code object of the original again, byte for byte; and for
# each converted file before_after.py: no new complaint of eu-elflint or readelf, and what loaded before loads
# after. In the end the corpus must be as it was: names, sizes, inodes, modes, times of all, digests of files
# under 100 MB. Prints a Markdown table; exits 1 if anything is wrong.
#
# Environment: GFXPACK names the program (default: this checkout's release build, built if it is not there).
# TMPDIR takes the output: it needs as much room as the largest artifact, on DIR's file system or another.
#
# The corpus: artifact directories DIR/shards/{shard}/{name}_lib_all/, each with an artifact_manifest.txt that
# lists one prefix and the libraries under {prefix}/lib. For example
#
#   apt-get download librocrand1 librocsparse0      # Debian 12; newer suites have librocblas4 and others
#   dpkg-deb -x librocsparse0_*.deb unpacked
#   to=/tmp/corpus/shards/bookworm/sparse_lib_all
#   mkdir -p $to/math-libs/BLAS/rocSPARSE/stage/lib
#   cp -a unpacked/usr/lib/x86_64-linux-gnu/. $to/math-libs/BLAS/rocSPARSE/stage/lib/
#   echo math-libs/BLAS/rocSPARSE/stage > $to/artifact_manifest.txt
#
# and the libbitsandbytes_rocm*.so of the public bitsandbytes wheel as shards/wheels/bnb_lib_all. Libraries that want a newer
# C library than the machine's load with DIR/sysroots/{shard} (or SYSROOTS/{shard}): the content of that suite's
# libc6, libstdc++6 and libgcc-s1, unpacked by dpkg-deb -x. Nothing of this may be committed.
set -euo pipefail
export LC_ALL=C.UTF-8

usage() {
  sed -n '5,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

set=small dir=/tmp/corpus options=()
if [[ ${1:-} == small || ${1:-} == all ]]; then
  set=$1
  shift
fi
if [[ $# -gt 0 && $1 != -* ]]; then
  dir=$1
  shift
fi
if [[ ${1:-} == -- ]]; then
  shift
  options=("$@")
elif [[ $# -gt 0 ]]; then
  usage
fi

need() { # need FILE-OR-COMMAND DEBIAN-PACKAGE
  command -v "$1" >/dev/null || {
    echo "$0: \`$1\` is missing: apt-get install $2" >&2
    exit 1
  }
}
need /usr/bin/time time
need /usr/bin/python3 'python3 python3-msgpack python3-zstandard'
need eu-elflint elfutils
need readelf binutils
need gcc gcc
need jq jq
python=/usr/bin/python3
$python -c 'import msgpack, zstandard' 2>/dev/null || {
  echo "$0: modules of $python are missing: apt-get install python3-msgpack python3-zstandard" >&2
  exit 1
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
gfxpack=${GFXPACK:-$repo/target/release/gfxpack}
if [[ ! -x $gfxpack ]]; then
  (cd "$repo" && cargo build --release)
fi
[[ -d $dir/shards ]] || {
  echo "$0: $dir/shards is not there; the head of this file says what it should hold" >&2
  exit 1
}
dir=$(cd "$dir" && pwd)
sysroots=${SYSROOTS:-$dir/sysroots}

artifacts=()
for artifact in "$dir"/shards/*/*_*_*/; do
  artifact=${artifact%/}
  shard=$(basename "$(dirname "$artifact")")
  [[ $set == all || $shard == bookworm || $shard == wheels ]] && artifacts+=("$artifact")
done
[[ ${#artifacts[@]} -gt 0 ]] || {
  echo "$0: no artifacts in $dir/shards" >&2
  exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fingerprint FILE: all that must not change in the artifacts. (The time of the last inode change does when
# something is hard-linked, so it is left out.)
fingerprint() {
  {
    find "${artifacts[@]}" -printf '%p %y %s %i %m %U:%G %T@ %l\n' | sort
    find "${artifacts[@]}" -type f -size -100000000c -print0 | sort -z | xargs -0r sha256sum
  } >"$1"
}

# lay TREE ROOT: the content of a tree's prefixes, without copying where that can be.
lay() {
  local prefix
  while IFS= read -r prefix; do
    if [[ -n $prefix && -d $1/$prefix ]]; then
      cp -al "$1/$prefix/." "$2/"
    fi
  done <"$1/artifact_manifest.txt"
}

mib() { awk -v bytes="$1" 'BEGIN { printf "%.1f", bytes / 1048576 }'; }

# What the libraries need of each other and of libraries that are not the base system's.
externals=(libamdhip64 libroctx64 librocblas librocrand libhipblas libhipblaslt libsqlite3 libfmt)

raises_nothing() { # raises_nothing TREES OPTION...
  local library named=() trees=$1
  shift
  for library in "${externals[@]}"; do
    named+=(--external "$library.so.*")
  done
  "$gfxpack" verify --warnings-as-errors "${named[@]}" --artifacts-dir "$trees" "$@" >"$work/verify.log" 2>&1 || {
    cat "$work/verify.log" >&2
    return 1
  }
}

# one ARTIFACT: sets `row`; what is wrong goes to standard error and into the verdict.
one() {
  local artifact=$1 name shard prefix out root size summary
  local wall=- user=- resident=- faults=()
  name=$(basename "$artifact")
  prefix=${name%_*}
  shard=$(basename "$(dirname "$artifact")")
  out=$work/split/$shard root=$work/root
  rm -rf "$work/split" "$work/shards" "$work/recombined" "$root"
  mkdir -p "$root" "$work/split" "$work/shards/$shard"
  ln -s "$(realpath "$artifact")" "$work/shards/$shard/$name"
  size=$(du -sb --apparent-size "$artifact" | cut -f1)
  echo "== $shard/$name" >&2

  # A warm cache: the disk's speed is not what is measured.
  find "$artifact" -type f -exec cat {} + >/dev/null
  if ! /usr/bin/time -o "$work/time" -f '%e %U %M' "$gfxpack" split --artifact-dir "$artifact" \
    --artifact-prefix "$prefix" --output-dir "$out" "${options[@]}" >"$work/split.log" 2>&1; then
    cat "$work/split.log" >&2
    row="| $shard/$prefix | $(mib "$size") | | | | | | | | | WRONG: split |"
    failed=yes
    return
  fi
  read -r wall user resident <"$work/time"
  raises_nothing "$out" --source "$work/shards/$shard" || faults+=("verify")
  if "$gfxpack" discover "$work/shards" --write-config "$work/groups.json" >"$work/recombine.log" 2>&1 &&
    "$gfxpack" recombine --input-shards-dir "$work/split" --config "$work/groups.json" \
      --output-dir "$work/recombined" >>"$work/recombine.log" 2>&1; then
    raises_nothing "$work/recombined" --config "$work/groups.json" --source "$work/shards" || faults+=("verify recombined")
  else
    cat "$work/recombine.log" >&2
    faults+=("recombine")
  fi
  rm -rf "$work/recombined" "$work/groups.json"

  local tree
  for tree in "$out"/*/; do
    lay "${tree%/}" "$root"
  done
  $python "$repo/tests/check/kernels.py" --root "$root" "$artifact" >"$work/summary" ||
    faults+=("kernels")
  summary=$work/summary
  [[ -s $summary ]] || echo '{"converted":[]}' >"$summary"

  local file original before sysroot=() loaded=0 converted=0
  [[ -d $sysroots/$shard ]] && sysroot=(--sysroot "$sysroots/$shard")
  while IFS= read -r file; do
    converted=$((converted + 1))
    original=
    while IFS= read -r before; do
      if [[ -n $before && -f $artifact/$before/$file ]]; then
        original=$artifact/$before/$file
      fi
    done <"$artifact/artifact_manifest.txt"
    if ! $python "$here/before_after.py" "${sysroot[@]}" "$original" "$root/$file" >"$work/file.json"; then
      cat "$work/file.json" >&2
      faults+=("$(basename "$file")")
    fi
    if [[ $(jq -r .loads "$work/file.json") == true ]]; then
      loaded=$((loaded + 1))
    fi
  done < <(jq -r '.converted[]' "$summary")

  local verdict="same bytes"
  if [[ $converted -gt 0 ]]; then
    verdict+=", $loaded of $converted load as before"
  fi
  if [[ ${#faults[@]} -gt 0 ]]; then
    failed=yes
    verdict=$(IFS=,; echo "WRONG: ${faults[*]}")
  fi
  if [[ $(jq -r '.hidden // 0' "$summary") != 0 ]]; then
    verdict+=", $(jq -r .hidden "$summary") hidden"
  fi
  row=$(jq -r --arg name "$shard/$prefix" --arg size "$(mib "$size")" --arg time "$wall / $user" \
    --arg resident "$(mib $((resident * 1024)))" --arg verdict "$verdict" '
    def mib: . / 104857.6 | round / 10 | tostring;
    [$name, $size, (.binaries|tostring), (.wrappers|tostring), (.code_objects|tostring), (.bytes|mib),
     (.files|tostring), $time, $resident, (.kpack_bytes|mib), $verdict] | "| " + join(" | ") + " |"' "$summary" 2>/dev/null) ||
    row="| $shard/$prefix | $(mib "$size") | | | | | | | | | WRONG: no summary |"
}

failed=no rows=()
fingerprint "$work/before"
for artifact in "${artifacts[@]}"; do
  one "$artifact"
  rows+=("$row")
done
rm -rf "$work/split" "$work/shards" "$work/recombined" "$work/root"
fingerprint "$work/after"

echo '| artifact | MiB | fat files | wrappers | code objects | MiB of them | other files | split: wall / user s | max RSS MiB | kpack MiB | verdict |'
echo '|---|---|---|---|---|---|---|---|---|---|---|'
printf '%s\n' "${rows[@]}"
echo
if cmp -s "$work/before" "$work/after"; then
  echo "The input is unchanged: $(grep -c . "$work/before") facts about it are the same as before."
else
  echo "THE INPUT HAS CHANGED:"
  diff "$work/before" "$work/after" | head -n 20
  failed=yes
fi
[[ $failed == no ]]
