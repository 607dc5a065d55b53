#!/bin/sh
# Installs what runs the image (podman) and what checks the Kubernetes manifests. Tests are skipped without.
set -eu
here=$(dirname "$0")
sh "$here/../../.ci/install-debian" "the tests of the image are skipped" podman runc mmdebstrap
checker=.state/kubernetes
[ -x $checker/bin/kubernetes-validate ] || {
    sh "$here/../../.ci/make-venv" python3 $checker
    PIP_CONSTRAINT= $checker/bin/python -m pip install --quiet kubernetes-validate==1.37.0
}
