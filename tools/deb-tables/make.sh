#!/usr/bin/env bash
# Makes the tables by which gfxpack turns what an ELF file needs into relations of a .deb.
#
#   make.sh [--output FILE] NAME SUITE [ARCHIVE KEYRING]
#
# With --output it writes to FILE, which `gfxpack build --target-distro FILE` takes; without, to
# src/package/elfdeps/tables/NAME.txt, which becomes part of the program. `make.sh --help` has examples.
#
# With apt, and an apt configuration of its own, takes the release's packages that packages.txt names, and of
# each the symbols and shlibs files, which are what dpkg-shlibdeps reads. Needs apt, dpkg-deb and python3.
# Packages are kept in ${DEB_TABLES_CACHE:-a temporary directory} between runs; the date of the archive and the
# versions that were read are in the table.
set -euo pipefail

usage() {
  cat <<END
usage: $0 [--output FILE] NAME SUITE [ARCHIVE KEYRING]

  $0 debian12 bookworm
  $0 --output ubuntu24.04.txt ubuntu24.04 noble \\
    "\$mirror" /usr/share/keyrings/ubuntu-archive-keyring.gpg
  gfxpack build --target-distro ./ubuntu24.04.txt ...

NAME is what the table calls the release; with one that begins with ubuntu, universe is read as well as main.
ARCHIVE is the address of a mirror, and KEYRING has the keys that its Release file is signed with (on Debian,
of the package ubuntu-keyring); without them, Debian's packages come from where apt of this machine has them from.
END
}

output=
while [[ ${1-} == -* ]]; do
  case $1 in
    --output)
      output=${2-}
      [[ -n $output ]] || { echo "$0: --output needs a FILE" >&2; exit 2; }
      shift 2
      ;;
    -h | --help) usage; exit ;;
    *) echo "$0: $1 is no option" >&2; usage >&2; exit 2 ;;
  esac
done
if [[ $# != 2 && $# != 4 ]]; then
  usage >&2
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
output=${output:-$here/../../src/package/elfdeps/tables/$name.txt}
if [[ ! -d $(dirname "$output") || -d $output ]]; then
  echo "$0: cannot write $output: name a file in a directory that is there" >&2
  exit 2
fi
if [[ -n ${DEB_TABLES_CACHE:-} ]]; then
  work=$DEB_TABLES_CACHE/$name
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
export LC_ALL=C
mkdir -p "$work"/{lists/partial,cache/archives/partial,debs,control}

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

if [[ ! -s $work/wanted ]]; then
  echo "$0: $suite has none of the packages that packages.txt names" >&2
  exit 1
fi

# The files of this archive, of which those that are there from another run are not fetched again.
xargs -a "$work/wanted" bash -c "$(declare -f apt); work='$work'"'; apt apt-get --print-uris download "$@"' - \
  | cut -d ' ' -f 2 >"$work/files"
while read -r deb; do
  [[ -e $work/debs/$deb ]] || echo "${deb%%_*}"
done <"$work/files" >"$work/missing"
if [[ -s $work/missing ]]; then
  (cd "$work/debs" && xargs -n 40 -a "$work/missing" bash -c \
    "$(declare -f apt); work='$work'"'; apt apt-get download "$@"' -) >&2
fi

rm -rf "$work/control"
while read -r deb; do
  mkdir -p "$work/control/${deb%%_*}"
  dpkg-deb --control "$work/debs/$deb" "$work/control/${deb%%_*}"
done <"$work/files"
date=$(sed -n '/^Date: / {s///p; q}' "$work"/lists/*Release)
python3 "$here/table.py" "$name" "$suite" "$date" "$work/control" >"$output.part"
mv "$output.part" "$output"
wc -l -c "$output" >&2
