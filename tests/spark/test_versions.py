"""Tests of batches, writes and streams, with other versions of Spark and their oldest pyarrow."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.neighbours

ROOT = Path(__file__).parents[2]
PATIENCE_S = 1800.0
BATCHES = (["test_batch.py", "test_write.py"], "not stream and not sink and not replayed")
OF_VERSION = {
    "4.0": BATCHES,
    "4.1": BATCHES,
    "4.2": (["test_batch.py", "test_write.py", "test_stream.py"], ""),
}


@pytest.mark.parametrize("version", OF_VERSION)
def test_a_version_of_spark_passes_what_it_has(version: str) -> None:
    python = ROOT / ".state" / f"spark-{version}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"Spark {version} is not installed (sh tests/spark/install.sh)")
    files, chosen = OF_VERSION[version]
    shown = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen]
        + [f"tests/spark/{name}" for name in files],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert shown.returncode == 0, shown.stdout[-5000:]
    assert " passed" in shown.stdout
    assert "skipped" not in shown.stdout
