#!/usr/bin/env bash
# Makes a small Debian of another release to try packages in, with its apt, dpkg and rpm.
#
#   tests/chroot/make.sh SUITE DIR [PACKAGE...]
#
# SUITE is `trixie` (rpm 4.20), `bookworm` or another; DIR must not exist: a directory outside of the
# checkout that is kept, as ~/.cache/gfxpack/trixie. PACKAGEs are installed beside. Needs root, 200 MB and
# mmdebstrap (apt-get install mmdebstrap); takes some minutes. MIRROR names another mirror than Debian's.
#
# Tests that need it are ignored ones. They make theirs in the target directory, or use another, as root:
#
#   GFXPACK_CHROOT=DIR cargo test --test signing -- --ignored --nocapture
#   tests/run --test lifecycle -- --ignored
set -euo pipefail

if [[ $# -lt 2 ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
fi
suite=$1 dir=$2
shift 2
mirror=${MIRROR:-http://deb.debian.org/debian}

if [[ $(id -u) != 0 ]]; then
  echo "$0: run it as root, who may chroot" >&2
  exit 1
fi
if ! command -v mmdebstrap >/dev/null; then
  echo "$0: mmdebstrap is missing: apt-get install mmdebstrap" >&2
  exit 1
fi
if [[ -e $dir ]]; then
  echo "$0: $dir is there already: remove it to make it anew" >&2
  exit 1
fi

include=$(IFS=,; echo "rpm,gpgv${*:+,$*}")
mkdir -p "$(dirname "$dir")"
# A run that was cut short leaves no directory that looks whole.
part=$(mktemp -d "$dir.part.XXXXXX")
trap 'rm -rf --one-file-system "$part"' EXIT
mmdebstrap --variant=apt --include="$include" "$suite" "$part/root" "$mirror"
mv "$part/root" "$dir"
chroot "$dir" rpm --version
