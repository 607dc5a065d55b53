#!/bin/sh
# Installs what tests/lake/readers.txt names into .state/readers, once.
set -eu
cd "$(dirname "$0")/../.."
stamp=.state/readers/.installed
if [ -e "$stamp" ] && cmp -s tests/lake/readers.txt "$stamp"; then
    exit 0
fi
rm -rf .state/readers
mkdir -p .state
sh .ci/make-venv "${PYTHON:-python3}" .state/readers
PIP_CONSTRAINT='' .state/readers/bin/python -m pip install --quiet --no-compile -r tests/lake/readers.txt
cp tests/lake/readers.txt "$stamp"
