#!/bin/sh
# Installs the clients that tests/kafka drives, below .state/kafka; pip brings those of Python. The tests
# of a client that is not installed are skipped.
set -eu
cd "$(dirname "$0")/../.."
pins=tests/kafka made=$PWD/.state/kafka
mkdir -p "$made"

sh .ci/install-debian "the tests of kcat are skipped" kcat
sh .ci/install-debian "the test of rsyslog is skipped" rsyslog rsyslog-kafka

if command -v npm >/dev/null && ! cmp -s $pins/package-lock.json "$made/installed"; then
    cp $pins/package.json $pins/package-lock.json "$made"
    (cd "$made" && npm ci --silent --no-audit --no-fund --ignore-scripts)
    cp $pins/package-lock.json "$made/installed"
fi
sh .ci/install-debian "kafka-javascript cannot be built, and its tests are skipped" \
    g++ make libcurl4-openssl-dev libssl-dev zlib1g-dev
# The binary of Confluent's client is in no registry: it is built, with the headers of the machine's Node.js.
theirs=$made/node_modules/@confluentinc/kafka-javascript
if [ -d "$theirs" ] && [ ! -e "$theirs/build/Release/confluent-kafka-javascript.node" ]; then
    echo "Building kafka-javascript …"
    (cd "$theirs" && CKJS_LINKING=dynamic nice npm rebuild --foreground-scripts --build-from-source --nodedir=/usr) \
        > "$made/kafka-javascript.output" 2>&1 ||
        echo "seb: kafka-javascript cannot be built (.state/kafka/kafka-javascript.output): skipped" >&2
fi

if command -v go >/dev/null; then
    (cd $pins/drivers/franz && go build -o "$made/franz" .) ||
        echo "seb: franz-go cannot be built; its tests are skipped" >&2
else
    echo "seb: there is no Go here; the tests of franz-go are skipped" >&2
fi

sh .ci/install-debian "the tests of the Java client are skipped" maven openjdk-17-jdk-headless
command -v mvn >/dev/null && command -v javac >/dev/null || exit 0
if ! cmp -s $pins/kafka-mirror.xml "$made/mirror.installed"; then
    rm -rf "$made/mirror"
    mvn -q -B -f $pins/kafka-mirror.xml \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$made/mirror"
    cp $pins/kafka-mirror.xml "$made/mirror.installed"
fi
if ! cat $pins/kafka-clients.xml $pins/drivers/Driver.java | cmp -s - "$made/java.installed"; then
    rm -rf "$made/java"
    mvn -q -B -f $pins/kafka-clients.xml \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DoutputDirectory="$made/java"
    javac -Xlint:all -cp "$made/java/*" -d "$made/java" $pins/drivers/Driver.java
    cat $pins/kafka-clients.xml $pins/drivers/Driver.java > "$made/java.installed"
fi
