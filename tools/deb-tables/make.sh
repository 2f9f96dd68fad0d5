#!/usr/bin/env bash
# Makes the tables by which gfxpack turns what an ELF file needs into relations of a .deb.
#
#   make.sh NAME SUITE [ARCHIVE KEYRING]
#
#   make.sh debian12 bookworm
#   make.sh ubuntu24.04 noble "$mirror" /usr/share/keyrings/ubuntu-archive-keyring.gpg
#
# ARCHIVE is the address of a mirror; without it, Debian's packages come from where apt of this machine has
# them from.
#
# Writes src/package/elfdeps/tables/NAME.txt. With apt, and an apt configuration of its own, takes the
# release's packages that packages.txt names, and of each the symbols and shlibs files, which are what
# dpkg-shlibdeps reads. Needs apt, dpkg-deb and python3. Packages are kept in ${DEB_TABLES_CACHE:-a
# temporary directory} between runs; the versions that were read are in the table.
set -euo pipefail

if [[ $# != 2 && $# != 4 ]]; then
  echo "usage: $0 NAME SUITE [ARCHIVE KEYRING]" >&2
  exit 2
fi
name=$1 suite=$2
archive=${3:-$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' | head -n 1)}
if [[ -z $archive ]]; then
  echo "$0: apt has no list of a Debian archive here: run apt-get update, or name ARCHIVE and KEYRING" >&2
  exit 1
fi
keyring=${4:-/usr/share/keyrings/debian-archive-keyring.gpg}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tables=$here/../../src/package/elfdeps/tables
if [[ -n ${DEB_TABLES_CACHE:-} ]]; then
  work=$DEB_TABLES_CACHE/$name
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
export LC_ALL=C
mkdir -p "$work"/{lists/partial,cache/archives/partial,debs,control} "$tables"

component=main
[[ $name != ubuntu* ]] || component='main universe'
echo "deb [signed-by=$keyring] $archive $suite $component" >"$work/sources.list"
apt() {
  local tool=$1
  shift
  "$tool" --quiet -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" \
    -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/nonexistent \
    -o Dir::State::Status=/dev/null -o APT::Architecture=amd64 -o APT::Architectures=amd64 \
    -o Acquire::Languages=none -o "APT::Sandbox::User=$(id -un)" "$@"
}
apt apt-get update >&2

# Globs into names of this release.
apt apt-cache pkgnames | sort >"$work/all"
while read -r glob; do
  [[ -n $glob && $glob != '#'* ]] || continue
  found=no
  while read -r package; do
    # shellcheck disable=SC2053 # it is a glob
    if [[ $package == $glob && $package != *-dev && $package != *-dbg* ]]; then
      echo "$package"
      found=yes
    fi
  done < <(grep -- "^${glob%%[*?[]*}" "$work/all" || true)
  [[ $found == yes ]] || echo "$name has no $glob" >&2
done <"$here/packages.txt" | sort -u >"$work/wanted"

while read -r package; do
  compgen -G "$work/debs/${package}_*.deb" >/dev/null || echo "$package"
done <"$work/wanted" >"$work/missing"
if [[ -s $work/missing ]]; then
  (cd "$work/debs" && xargs -n 40 -a "$work/missing" bash -c \
    "$(declare -f apt); work='$work'"'; apt apt-get download "$@"' -) >&2
fi

rm -rf "$work/control"
for deb in "$work"/debs/*.deb; do
  package=$(basename "$deb")
  package=${package%%_*}
  grep -qxF -- "$package" "$work/wanted" || continue
  mkdir -p "$work/control/$package"
  dpkg-deb --control "$deb" "$work/control/$package"
done
python3 "$here/table.py" "$name" "$suite" "$work/control" >"$tables/$name.txt.part"
mv "$tables/$name.txt.part" "$tables/$name.txt"
wc -l -c "$tables/$name.txt" >&2
