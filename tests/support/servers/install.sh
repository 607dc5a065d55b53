#!/bin/sh
# Installs servers that Debian has: Ceph with its gateway, Swift with s3api, nginx, Caddy. (moto and
# rclone come with pip, others by install-built.sh.) Tests of a server that is not installed are skipped.
set -eu
sh "$(dirname "$0")/../../../.ci/install-debian" "the tests on Ceph and Swift are skipped" \
    radosgw ceph-osd ceph-mon ceph-common \
    swift-proxy swift-account swift-container swift-object memcached
sh "$(dirname "$0")/../../../.ci/install-debian" "the tests behind nginx and Caddy are skipped" \
    nginx-light caddy curl
