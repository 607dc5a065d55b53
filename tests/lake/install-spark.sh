#!/bin/sh
# Installs what tests/lake/spark.txt and spark.xml name into .state/spark, once. Needs Maven.
set -eu
cd "$(dirname "$0")/../.."
stamp=.state/spark/.installed
if [ -e "$stamp" ] && cat tests/lake/spark.txt tests/lake/spark.xml | cmp -s - "$stamp"; then
    exit 0
fi
rm -rf .state/spark
mkdir -p .state
sh .ci/make-venv "${PYTHON:-python3}" .state/spark
PIP_CONSTRAINT='' .state/spark/bin/python -m pip install --quiet -r tests/lake/spark.txt
mvn -q -B -f tests/lake/spark.xml \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DexcludeTransitive -DoutputDirectory="$PWD/.state/spark/jars"
cat tests/lake/spark.txt tests/lake/spark.xml > "$stamp"
