"""Only tests of figures are run again, and only conftest.py says so."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGIN = "rerun" + "failures"


def test_no_test_asks_to_be_run_again() -> None:
    asking = ("mark." + "flaky", "--" + "reruns")
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert path.name == "conftest.py" or not any(word in text for word in asking), path


def test_the_plugin_that_runs_tests_again_is_off_but_for_measured_tests() -> None:
    assert f"-p no:{PLUGIN}" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (line,) = [
        line
        for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
        if PLUGIN in line
    ]
    assert '-m "measured and not alone and not neighbours"' in line
