#!/usr/bin/env bash
# Installs the Debian packages that some tests need, if this is possible without a password: as root or
# with passwordless sudo. Otherwise, the script lists the packages. The tests that need a missing package
# are skipped and report the package.
set -euo pipefail
packages=(libgomp1 libquadmath0 chromium chromium-driver iproute2 postgresql libqt5gui5 systemd tini)

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [[ $status == *"ok installed" ]] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "not a Debian system: install yourself, for the tests that need them: ${missing[*]}"
    exit 0
elif [ "$(id -u)" = 0 ]; then
    apt_get=(apt-get)
elif sudo -n true 2>/dev/null; then
    apt_get=(sudo -n env DEBIAN_FRONTEND=noninteractive apt-get)
else
    echo "for the tests that need them: sudo apt-get install ${missing[*]}"
    exit 0
fi
echo "installing for the tests: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${apt_get[@]}" -qq update
"${apt_get[@]}" -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
