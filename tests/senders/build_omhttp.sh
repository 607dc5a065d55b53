#!/bin/sh
# Debian's rsyslog lacks omhttp, which is part of its source. Usage: build_omhttp.sh FOLDER
set -eu
mkdir -p "$1/sources" "$1/lists/partial"
cd "$1"
for file in /etc/apt/sources.list.d/debian.sources; do
    [ ! -e "$file" ] || sed 's/^Types: .*/Types: deb-src/' "$file" > sources/debian.sources
done
[ ! -s /etc/apt/sources.list ] || sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > sources/debian.list
with="-qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$1/sources -o Dir::State::lists=$1/lists"
# shellcheck disable=SC2086 # a list of words
apt-get $with update
# A version of the security archive may be gone; the upstream source is the same.
# shellcheck disable=SC2086
for version in $(apt-cache $with showsrc rsyslog | sed -n 's/^Version: //p'); do
    apt-get $with source --download-only "rsyslog=$version" && break
done
tar -xzf rsyslog_*.orig.tar.gz
cd rsyslog-*/
./configure --quiet --enable-omhttp --disable-libgcrypt --disable-uuid --disable-libsystemd \
    --disable-klog --disable-fmhttp --disable-generate-man-pages
make --quiet -C contrib/omhttp
cp contrib/omhttp/.libs/omhttp.so "$1/omhttp.so"
