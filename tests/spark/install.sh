#!/bin/sh
# Installs other versions of Spark below .state, each with the oldest pyarrow that it takes; the rest is in the
# project's own environment. The tests of a version that is not installed are skipped.
set -eu
cd "$(dirname "$0")/../.."
project=$PWD/.venv/lib/python3.11/site-packages
for pins in "4.0.4 11.0.0" "4.1.4 15.0.0" "4.2.1 18.0.0"; do
    spark=${pins% *} made=.state/spark-${pins%.* *}
    [ "$(cat "$made/.installed" 2>/dev/null)" != "$pins" ] || continue
    rm -rf "$made"
    sh .ci/make-venv "${PYTHON:-python3}" "$made"
    PIP_CONSTRAINT='' "$made/bin/python" -m pip install --quiet \
        "pyspark==$spark" "pyarrow==${pins#* }" pandas==2.2.3 numpy==1.26.4 \
        grpcio==1.76.0 grpcio-status==1.76.0 googleapis-common-protos==1.71.0 zstandard==0.25.0
    ln -s "$PWD/.venv/bin/moto_server" "$made/bin/"
    echo "$project" > "$made/lib/python3.11/site-packages/project.pth"
    echo "$pins" > "$made/.installed"
done
# What a client of Spark Connect needs besides the project's own environment.
[ -d .state/connect/grpc ] || .venv/bin/python -m pip install --quiet --no-deps --target .state/connect \
    grpcio==1.76.0 grpcio-status==1.76.0 zstandard==0.25.0
