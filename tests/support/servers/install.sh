#!/bin/sh
# Installs what the slow tests need from Debian: Chromium; with the argument `neighbours` also Ceph
# with its gateway and Swift with s3api; where TEST_MACHINES is set, what makes and boots the
# machines of tests/ansible;
# and axe-core with npm, which looks at the pages as somebody does who cannot see them. (moto and
# rclone come with pip.) Tests that need something that is not there are skipped.
set -eu

PACKAGES="chromium${TEST_MACHINES:+ systemd-container mmdebstrap openssh-client}"
if [ "${1:-}" = neighbours ]; then
    PACKAGES="$PACKAGES radosgw ceph-osd ceph-mon ceph-common
        swift-proxy swift-account swift-container swift-object memcached"
fi

AXE=4.14.1
axe="$(dirname "$0")/../../../.state/axe"
if [ ! -e "$axe/node_modules/axe-core/axe.min.js" ] && command -v npm >/dev/null; then
    mkdir -p "$axe"
    npm install --silent --no-save --no-audit --no-fund --ignore-scripts --prefix "$axe" \
        "axe-core@$AXE" ||
        echo "install.sh: no axe-core; the test of accessibility will be skipped"
fi

if ! command -v apt-get >/dev/null; then
    echo "install.sh: no apt-get here; tests on Ceph, Swift and in a browser will be skipped"
    exit 0
fi
missing=""
for package in $PACKAGES; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
if [ -z "$missing" ]; then
    exit 0
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
    if ! sudo -n true 2>/dev/null; then
        echo "install.sh: neither root nor sudo; tests on Ceph, Swift and in a browser will be skipped"
        echo "install.sh: to run them, as root: apt-get install --no-install-recommends$missing"
        exit 0
    fi
fi

# The packages would start daemons of their own; the tests start theirs.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
    trap '$as_root rm -f "$policy"' EXIT
fi
$as_root apt-get update -q
# shellcheck disable=SC2086 # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends $missing
