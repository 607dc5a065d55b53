#!/bin/sh
# Installs the S3 servers of the slow tests from Debian: Ceph with its gateway, Swift with s3api.
# (moto and rclone come with pip.) Tests that need a server that is not there are skipped.
set -eu

PACKAGES="radosgw ceph-osd ceph-mon ceph-common
    swift-proxy swift-account swift-container swift-object memcached"

if ! command -v apt-get >/dev/null; then
    echo "install.sh: no apt-get here; tests on Ceph and Swift will be skipped"
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
        echo "install.sh: neither root nor sudo; tests on Ceph and Swift will be skipped"
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
