#!/usr/bin/env bash
# Installs what the tests run beside gfxpack, on Debian 12. Does nothing where all is there.
set -euo pipefail

packages=(
  # For cargo: the linker, and the C compiler of the bundled compressors.
  gcc libc6-dev
  # Compile and take apart the fixtures, real fat binaries.
  clang-19 clang-tools-19 lld-19 llvm-19
  # Other linkers, and the tools that people put converted binaries through.
  binutils elfutils file gdb mold patchelf
  # Install packages, and make some to compare with.
  apt apt-utils dpkg dpkg-dev rpm rpm2cpio
  # Install them from repositories, as Fedora and openSUSE do.
  createrepo-c dnf zypper
  # Make apt repositories, to compare with.
  aptly reprepro
  # Judges of packages.
  lintian rpmlint
  # Run plans of builds, and are killed.
  ninja-build procps
  # Make keys, and check signatures.
  gnupg gpgv sqv
  # Make another Debian to chroot into, for ignored tests.
  mmdebstrap
  # Other readers of packages, of capabilities, and of the archives of kernels.
  cpio libarchive-tools libcap2-bin python3 python3-msgpack python3-zstandard
  # Shows what a run reads, makes system calls fail or wait, and kills a run in one; sends signals.
  strace procps
  # User namespaces, for installs by users who are not root.
  util-linux
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "$0: there is no apt-get here; the tests need what Debian 12 has as: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [[ $(id -u) != 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "$0: as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet)
"${apt[@]}" update
"${apt[@]}" install --yes --no-install-recommends "${missing[@]}"
