#!/bin/sh
# Installs the programs that tests/senders runs. Tests of a program that is not installed are skipped.
set -eu
cd "$(dirname "$0")/../.."
without="the tests of log shippers are skipped"
sh .ci/install-debian "$without" collectd-core libyajl2 libcurl3-gnutls rsyslog \
    libivykis0 libnet1 libwrap0 libestr-dev libfastjson-dev libcurl4-openssl-dev zlib1g-dev gcc make pkg-config
folder=$PWD/.state/senders
mkdir -p "$folder"

# Debian's syslog-ng and rsyslog exclude each other, so syslog-ng is only unpacked.
if [ ! -e "$folder/syslog-ng/usr/sbin/syslog-ng" ]; then
    (cd "$folder" && apt-get download -qq syslog-ng-core syslog-ng-mod-http 2>/dev/null) &&
        for package in "$folder"/syslog-ng-*.deb; do dpkg -x "$package" "$folder/syslog-ng"; done ||
        echo "seb: syslog-ng cannot be downloaded; its test is skipped" >&2
fi

# In one go: npm removes what another one installed.
{ [ -e "$folder/node_modules/winston-loki" ] && [ -e "$folder/node_modules/mqtt" ]; } ||
    npm install --silent --no-save --no-audit --no-fund --ignore-scripts --prefix "$folder" \
        winston@3.19.0 winston-loki@6.1.7 mqtt@5.16.0 ||
    echo "seb: winston-loki and mqtt.js cannot be installed; their tests are skipped" >&2
sh .ci/install-debian "tests of mosquitto's clients are skipped" mosquitto mosquitto-clients
sh .ci/install-debian "tests of MQTT by proxies are skipped" haproxy nginx-light libnginx-mod-stream

if [ "${TEST_DEBEZIUM-}" = install ]; then
    sh .ci/install-debian "the test of Debezium is skipped" postgresql maven
    sh tests/senders/install_debezium.sh "$folder"
fi

[ ! -e "$folder/omhttp.so" ] || exit 0
echo "Building rsyslog's omhttp …"
sh tests/senders/build_omhttp.sh "$folder" > "$folder/omhttp.output" 2>&1 ||
    echo "seb: omhttp cannot be built (.state/senders/omhttp.output); its test is skipped" >&2
