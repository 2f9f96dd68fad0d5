#!/usr/bin/env bash
# Makes the inputs that fuzzing starts from, in tests/fuzz/seeds: what gfxpack makes of the examples, and
# small files of each format. Needs what tests/setup.sh installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

root=$(cd ../.. && pwd)
shards=$root/examples/shards
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seeds=$work/seeds

cargo build --quiet --locked --manifest-path "$root/Cargo.toml" --bin gfxpack
gfxpack=${CARGO_TARGET_DIR:-$root/target}/debug/gfxpack

mkdir -p "$seeds"/{archive,bundle,ccob,code_object,elf_convert,inspect_deb,inspect_rpm,kpack,kpm,marker,payload_deb,payload_rpm,tar}

# Copies files, called by their contents so that equal ones come once, up to a size that mutates well.
take() {
  local target=$1 most=$2 file
  shift 2
  for file; do
    [[ $(stat --format=%s "$file") -gt $most ]] ||
      cp "$file" "$seeds/$target/$(sha1sum < "$file" | cut -c 1-16)"
  done
}
found() { mapfile -d '' -t files < <(find "$@" -type f -print0 | sort -z); }

for how in zstd none; do
  "$gfxpack" --quiet split --batch-artifact-parent-dir "$shards/gfx1151-build" \
    --output-dir "$work/split-$how" --compression "$how" --kpack-scope binary
done
found "$work" -name '*.kpack'
take kpack 20000 "${files[@]}"
found "$work" -name '*.kpm'
take kpm 4096 "${files[@]}"

found "$shards/gfx1151-build" "$work/split-zstd" \( -name '*.so.*' -o -path '*/bin/*' \)
take elf_convert 36000 "${files[@]}"
for file in "${files[@]}"; do
  for section in .rocm_kpack_ref .hip_fatbin; do
    objcopy --output-target binary --only-section "$section" --set-section-flags "$section=alloc,contents" \
      "$file" "$work/section" 2> /dev/null || continue
    case $section in
      .rocm_kpack_ref) take marker 4096 "$work/section" ;;
      .hip_fatbin)
        take bundle 20000 "$work/section"
        take ccob 20000 "$work/section"
        ;;
    esac
  done
done
found "$shards/gfx1151-build" \( -name '*.co' -o -name '*.hsaco' \)
take code_object 20000 "${files[@]}"

for artifact in "$shards"/gfx1151-build/*/; do
  tar --create --format pax --sort name --mtime @0 --directory "$artifact" --file "$work/tar" .
  take archive 100000 "$work/tar"
done

build() {
  "$gfxpack" --quiet build --input-shards-dir "$shards" --config "$root/examples/packaging-config.json" \
    --packages "$root/examples/packages.json" --version 1.0 --release 1 "$@"
}
build --output-dir "$work/zstd"
build --output-dir "$work/xz" --deb-compression xz:6 --format deb
build --output-dir "$work/none" --deb-compression none --format deb
found "$work/zstd" "$work/xz" "$work/none" -name '*.deb'
take inspect_deb 16000 "${files[@]}"
found "$work/zstd" -name '*.rpm'
for file in "${files[@]}"; do
  # The payload is not read.
  head --bytes 24000 "$file" > "$work/rpm"
  take inspect_rpm 24000 "$work/rpm"
done

# Not the first python3 in the path, which may be one without the modules.
/usr/bin/python3 small-seeds.py "$seeds"
rm -rf seeds
cp -r "$seeds" seeds
for dir in seeds/*; do
  printf '%-12s %4d seeds\n' "${dir##*/}" "$(find "$dir" -type f | wc -l)"
done
