#!/usr/bin/env bash
# Fuzzes: tests/fuzz/run.sh [SECONDS] [TARGET...], 600 seconds for each of all targets unless told
# otherwise, FUZZ_JOBS (1) of them side by side. Prints a table at the end, and fails where an input
# made a target crash, take 10 seconds or too much memory; such inputs are in tests/fuzz/artifacts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

seconds=600
if [[ ${1-} =~ ^[0-9]+$ ]]; then
  seconds=$1
  shift
fi
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(sed -n 's|^path = "targets/\(.*\)\.rs"$|\1|p' Cargo.toml)

command -v cargo-fuzz > /dev/null || cargo install cargo-fuzz --locked
# Coverage and sanitizers are unstable options of rustc, which a stable one takes with this.
export RUSTC_BOOTSTRAP=1
# Freed memory is not held back for long, else it would count as used.
export ASAN_OPTIONS=quarantine_size_mb=16:${ASAN_OPTIONS-}
fuzz=(--fuzz-dir . --sanitizer "${FUZZ_SANITIZER:-address}")

[[ -d seeds ]] || ./seeds.sh
cargo fuzz build "${fuzz[@]}"
built=${CARGO_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/release
mkdir -p log
# For targets that need their input in a file: in memory, where there is such a place.
[[ ! -d /dev/shm ]] || TMPDIR=/dev/shm
TMPDIR=$(TMPDIR=${TMPDIR:-/tmp} mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

run() {
  local target=$1
  local options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=512 -malloc_limit_mb=300)
  options+=(-print_final_stats=1 -use_value_profile=1)
  [[ ! -f dict/$target.dict ]] || options+=(-dict="dict/$target.dict")
  # Zeros that a kilobyte stands for are read in a second, those of a megabyte are not.
  [[ $target != ccob ]] || options+=(-max_len=16384)
  mkdir -p "corpus/$target" "artifacts/$target"
  options+=(-artifact_prefix="artifacts/$target/")
  # Not `cargo fuzz run`, which would build anew what is edited meanwhile.
  "$built/$target" "${options[@]}" "corpus/$target" "seeds/$target" > "log/$target" 2>&1 || true
}

for target in "${targets[@]}"; do
  while [[ $(jobs -rp | wc -l) -ge ${FUZZ_JOBS:-1} ]]; do wait -n; done
  run "$target" &
done
wait

status=0
printf '| %-11s | %10s | %6s | %6s | %8s | %8s | %7s |\n' \
  target runs exec/s corpus coverage 'peak RSS' crashes
echo '|---|---|---|---|---|---|---|'
for target in "${targets[@]}"; do
  stat() { sed -n "s/^stat::$1: *//p" "log/$target" | tail -n 1; }
  last() { grep -o "$1: [0-9]*" "log/$target" | tail -n 1 | cut -d ' ' -f 2; }
  crashes=$(find "artifacts/$target" -type f | wc -l)
  runs=$(stat number_of_executed_units)
  printf '| %-11s | %10s | %6s | %6s | %8s | %8s | %7s |\n' "$target" "${runs:-?}" \
    "$(stat average_exec_per_sec)" "$(last corp)" "$(last cov)" "$(stat peak_rss_mb) MB" "$crashes"
  # A target that does not run at all has no crash, but it says nothing either.
  [[ $crashes == 0 && -n $runs ]] || status=1
done
exit "$status"
