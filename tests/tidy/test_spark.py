"""The Spark connector needs nothing of the server, and its documentation names what there is."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark" / "pyspark_seb"
MODULES = sorted(PACKAGE.rglob("*.py"))
OURS = {"limits", "errors", "formats", "lake"}
THEIRS = {"pyspark", "pyarrow", "msgspec", "crc32c"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ALONE = tomllib.loads((ROOT / "spark" / "pyproject.toml").read_text(encoding="utf-8"))
DOC = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


def imports(path: Path) -> set[str]:
    """Whole names of the modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found |= {f"{base}.{a.name}" if base == "seb_appliance" else base for a in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_an_executor_needs_no_more_than_the_formats(path: Path) -> None:
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "seb_appliance":
            assert rest.partition(".")[0] in OURS, name
        elif top not in {"pyspark_seb", *sys.stdlib_module_names}:
            assert top in THEIRS, name


def test_the_package_alone_carries_what_it_imports_of_ours(tmp_path: Path) -> None:
    """Also what the modules that it carries import, of which some only write."""
    wheel = ALONE["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source, name in wheel["force-include"].items():
        copied = tmp_path / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.symlink_to(ROOT / "spark" / source)
    carried = [path for path in tmp_path.rglob("*.py") if path.name != "__init__.py"]
    carried += (tmp_path / "seb_appliance" / "formats").resolve().rglob("*.py")
    for path in carried:
        for name in imports(path):
            at = tmp_path / name.replace(".", "/")
            ours = name.startswith("seb_appliance.")
            assert not ours or at.is_dir() or at.with_suffix(".py").exists(), (path, name)


def test_the_package_alone_asks_for_what_the_whole_asks_for() -> None:
    known = {*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["spark"]}
    assert set(ALONE["project"]["dependencies"]) <= known
    assert set(ALONE["project"]["optional-dependencies"]["spark"]) <= known


def test_the_tables_of_options_are_those_of_the_code() -> None:
    pytest.importorskip("pyspark")
    from pyspark_seb.declared import table

    assert table("batch", "stream") in DOC, "print them: pyspark_seb.declared.table"
    assert table("write") in DOC


def test_every_job_is_documented() -> None:
    jobs = {path.stem for path in PACKAGE.glob("jobs/*.py") if "\nJOB = " in path.read_text()}
    page = (ROOT / "docs" / "spark-jobs.md").read_text(encoding="utf-8").partition("Every job")[0]
    assert jobs == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
