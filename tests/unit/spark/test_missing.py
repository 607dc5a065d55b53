"""What users see where the connector cannot be imported, or Spark is too old."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyspark
from pyspark_seb.errors import BadOptionError
from pyspark_seb.versions import require

ROOT = Path(__file__).parents[3]
USES = """
import pyspark_seb
try:
    pyspark_seb.DefaultSource({})
except pyspark_seb.SebSparkError as error:
    print(pyspark_seb.DefaultSource.name(), error)
"""


def test_a_source_whose_packages_are_missing_says_which(tmp_path: Path) -> None:
    """Spark hides what is raised while it looks for sources: the class has to be there."""
    (tmp_path / "msgspec.py").write_text("raise ModuleNotFoundError(\"No module named 'msgspec'\")")
    path = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "spark")))
    shown = subprocess.run(
        [sys.executable, "-c", USES],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert shown.startswith("seb pyspark_seb cannot be used by ")
    assert "No module named 'msgspec'" in shown


def test_a_spark_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    require("writing a stream needs", 4, 1)
    with pytest.raises(BadOptionError, match=r"needs Spark 4\.2 or newer, and this is 4\.1\.4"):
        require("reading a stream needs", 4, 2)
