#!/usr/bin/env bash
# How long `gfxpack repo` takes beside the tools that write the same indices, in one run over the same packages:
#   repo.sh                       PACKAGES (5000) of each format, made first: 5 versions of PACKAGES/5
# Measured are making a repository, adding 10 packages to it, and pruning it to one version of each. .deb: ours;
# `apt-ftparchive` (packages, contents, release) and `dpkg-scanpackages`, each with gzip -6, xz -6 and zstd -10 of what they print,
# which ours has as well; and `apt-ftparchive` with its database (--db), which reads a package once, as ours. .rpm: ours;
# `createrepo_c`, and with --update. The others find the packages where they are to be; ours makes links to them (--link), and,
# in a row of its own, copies them. Nothing is signed. Files are flushed to the disk by ours alone, and
# between the measurements. Warm cache; wall time, CPU time (user and system; on a busy
# machine the one to look at), peak memory. RUNS (1) times, the least of each. Prints a Markdown table.
# Needs: apt-utils createrepo-c dpkg-dev gzip python3 time xz-utils zstd, and in WORK (a temporary folder) 2 GB, and half of one more for each run.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -eq 0 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for need in apt-ftparchive dpkg-scanpackages createrepo_c gzip python3 xz zstd /usr/bin/time; do
  command -v "$need" >/dev/null || { echo "$0: $need is missing (see its head for the packages)" >&2; exit 1; }
done
[ -n "${GFXPACK:-}" ] || cargo build --release --locked --quiet --manifest-path "$repo/Cargo.toml"
gfxpack=${GFXPACK:-$repo/target/release/gfxpack}
packages=${PACKAGES:-5000}
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/gfxpack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
export LC_ALL=C

# ---- the packages: each has 40 files of half a kilobyte that cannot be compressed ----
python3 - "$work" "$((packages / 5))" <<'P'
import json, os, random, sys
work, names = sys.argv[1], int(sys.argv[2])
random.seed(1)
artifact = f"{work}/artifacts/bench_lib_generic"
prefixes, definitions = [], []
for n in range(names):
    prefix = f"p{n:04}"
    prefixes.append(prefix)
    at = f"{artifact}/{prefix}/share/library{n:04}/kernels"
    os.makedirs(at)
    for f in range(40):
        with open(f"{at}/Kernels_{n}_{f}.dat", "wb") as out:
            out.write(random.randbytes(512))
    # Of those before it: none needs itself.
    relations = sorted({f"bench{random.randrange(n):04}" for _ in range(6)}) if n else []
    definitions.append({
        "name": f"bench{n:04}", "summary": f"Part {n} of a large set",
        "description": "Made to be one of many in a repository.\n\n" + " ".join(f"word{random.randrange(999)}" for _ in range(60)),
        "contents": [{"artifact": "bench", "prefixes": [prefix]}],
        "deb": {"depends": [f"{r} (>= 1.0)" for r in relations]}, "rpm": {"requires": [f"{r} >= 1.0" for r in relations]},
    })
open(f"{artifact}/artifact_manifest.txt", "w").write("\n".join(prefixes) + "\n")
json.dump({"packages": definitions}, open(f"{work}/packages.json", "w"))
groups = {"gfx90X": {"display_name": "g", "architectures": ["gfx90a"]}}
json.dump({"primary_shard": "a", "architecture_groups": groups}, open(f"{work}/groups.json", "w"))
P
make() { # VERSION OUT ARGS...
  SOURCE_DATE_EPOCH=$((1767225600 + $1 * 86400)) "$gfxpack" package --quiet --artifacts-dir "$work/artifacts" \
    --config "$work/groups.json" --packages "$work/packages.json" --no-auto-deps --version "$1.0" --release 1 \
    --output-dir "$2" "${@:3}"
}
for version in 1 2 3 4 5; do make "$version" "$work/in/$version"; done
make 6 "$work/new" --only bench000{0..9}
rm -rf "$work/artifacts"
fresh() { # the packages as the others want to have them. Nothing is removed: ext4 is slow for a while where many files were
  [[ ! -e $work/deb ]] || { mkdir "$work/old$run"; mv "$work"/{deb,rpm,ours.deb,ours.rpm} "$work/old$run"; }
  mkdir -p "$work/deb/pool" "$work/rpm"
  find "$work/in" -name '*.deb' -exec cp -l -t "$work/deb/pool" {} +
  find "$work/in" -name '*.rpm' -exec cp -l -t "$work/rpm" {} +
}
more() { cp -l "$work"/new/*.deb "$work/deb/pool"; cp -l "$work"/new/*.rpm "$work/rpm"; }
mkdir "$work/only.deb" "$work/only.rpm" "$work/new.deb" "$work/new.rpm"
for format in deb rpm; do
  find "$work/in" -name "*.$format" -exec cp -l -t "$work/only.$format" {} +
  cp -l "$work"/new/*."$format" "$work/new.$format"
done

# ---- what is measured ----
ours_create() { "$gfxpack" repo create "$work/ours.$1" "$work/only.$1" --jobs 2 --quiet "${@:2}" 2>/dev/null; }
ours_add() { "$gfxpack" repo add "$work/ours.$1" "$work/new.$1" --jobs 2 --quiet --link; }
ours_prune() { "$gfxpack" repo prune "$work/ours.$1" --keep 1 --jobs 2 --quiet; }
packed() { # the others have two cores as well
  (cd "$work/deb" && { xz -6 -k -f "$1" & gzip -6 -n -k -f "$1"; zstd -q -10 -k -f "$1"; wait; })
}
ftparchive() {
  cd "$work/deb"
  mkdir -p dists/stable/main/binary-amd64
  local of=dists/stable/main/binary-amd64/Packages
  apt-ftparchive "$@" packages pool > $of & apt-ftparchive "$@" contents pool | gzip -6 -n > dists/stable/main/Contents-amd64.gz
  wait
  packed $of
  apt-ftparchive release dists/stable > Release && mv Release dists/stable
}
ftparchive_db() {
  cd "$work/deb"
  mkdir -p dists/stable/main/binary-amd64
  local of=dists/stable/main/binary-amd64/Packages
  # One after the other: the database has one writer.
  apt-ftparchive --db "$work/deb/cache.db" packages pool > $of
  apt-ftparchive --db "$work/deb/cache.db" contents pool | gzip -6 -n > dists/stable/main/Contents-amd64.gz
  packed $of
  apt-ftparchive release dists/stable > Release && mv Release dists/stable
}
scanpackages() { cd "$work/deb"; dpkg-scanpackages -m pool > Packages 2>/dev/null; packed Packages; }
createrepo() { createrepo_c --quiet --workers 2 "$@" "$work/rpm"; }
export -f ours_create ours_add ours_prune packed ftparchive ftparchive_db scanpackages createrepo
export work gfxpack

declare -A wall cpu rss
order=()
measure() { # NAME COMMAND
  local line elapsed seconds peak
  # What one has left to be written is not for the next, which flushes, to wait for.
  sync -f "$work"
  /usr/bin/time -o "$work/time" -f '%e %U %S %M' bash -ec "$2" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  line=$(tail -n 1 "$work/time")
  elapsed=$(cut -d' ' -f1 <<< "$line") peak=$(cut -d' ' -f4 <<< "$line")
  seconds=$(awk '{ print $2 + $3 }' <<< "$line")
  echo "$1: $elapsed s" >&2
  [[ -n ${wall[$1]:-} ]] || order+=("$1")
  wall[$1]=$(least "$elapsed" "${wall[$1]:-}") cpu[$1]=$(least "$seconds" "${cpu[$1]:-}") rss[$1]=$(least "$peak" "${rss[$1]:-}")
}
least() { awk -v a="$1" -v b="${2:-}" 'BEGIN { print (b == "" || a < b) ? a : b }'; }
find "$work/in" -type f -exec cat {} + > /dev/null
for ((run = 0; run < ${RUNS:-1}; run++)); do
  fresh
  measure "create .deb | gfxpack, copies" "ours_create deb"
  mv "$work/ours.deb" "$work/copies$run.deb"
  measure "create .deb | gfxpack" "ours_create deb --link"
  measure "create .deb | apt-ftparchive" "ftparchive"
  measure "create .deb | apt-ftparchive --db" "ftparchive_db"
  measure "create .deb | dpkg-scanpackages" "scanpackages"
  measure "create .rpm | gfxpack, copies" "ours_create rpm"
  mv "$work/ours.rpm" "$work/copies$run.rpm"
  measure "create .rpm | gfxpack" "ours_create rpm --link"
  measure "create .rpm | createrepo_c" "createrepo"
  more
  measure "add 10 .deb | gfxpack" "ours_add deb"
  measure "add 10 .deb | apt-ftparchive" "ftparchive"
  measure "add 10 .deb | apt-ftparchive --db" "ftparchive_db"
  measure "add 10 .deb | dpkg-scanpackages" "scanpackages"
  measure "add 10 .rpm | gfxpack" "ours_add rpm"
  measure "add 10 .rpm | createrepo_c" "createrepo"
  measure "add 10 .rpm | createrepo_c --update" "createrepo --update"
  measure "prune .deb | gfxpack" "ours_prune deb"
  measure "prune .rpm | gfxpack" "ours_prune rpm"
done

echo "$(find "$work/only.deb" -type f | wc -l) packages of each format; .deb: $(du -shL "$work/only.deb" | cut -f1), .rpm: $(du -shL "$work/only.rpm" | cut -f1)"
echo
echo "| | tool | wall s | CPU s | peak MiB | of ours, wall |"
echo "|---|---|---|---|---|---|"
for name in "${order[@]}"; do
  ours="${name%% | *} | gfxpack"
  awk -v n="$name" -v w="${wall[$name]}" -v c="${cpu[$name]}" -v r="${rss[$name]}" -v o="${wall[$ours]}" \
    'BEGIN { printf "| %s | %.2f | %.2f | %.0f | %.1f x |\n", n, w, c, r / 1024, w / (o > 0.01 ? o : 0.01) }'
done
