#!/usr/bin/env bash
# Installs the Debian packages that some tests need, where that is possible without asking anybody:
# as root, or with a sudo that wants no password. Elsewhere it names them and goes on; the tests
# that need them are then skipped, each saying which package is missing.
set -euo pipefail
packages=(libgomp1 libquadmath0 chromium chromium-driver iproute2 postgresql libqt5gui5 tini)

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "not a Debian system: install yourself, for the tests that need them: ${missing[*]}"
elif [ "$(id -u)" = 0 ]; then
    as_root=()
elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
else
    echo "for the tests that need them: sudo apt-get install ${missing[*]}"
fi
[ -v as_root ] || exit 0
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq update
"${as_root[@]}" apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
