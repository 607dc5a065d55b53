"""What is shipped can be checked: the wheel is the same wherever it is built, the list of its parts
is whole, and the audit of its pins does not take silence for health."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from release.sbom import sbom

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = ("seb_appliance", "spark", "migrations", "templates", "examples")
FILES = ("pyproject.toml", "README.md", "LICENSE", ".gitignore")


def wheel(checkout: Path, folder: Path) -> bytes:
    (built,) = WheelBuilder(str(checkout)).build(directory=str(folder), versions=["standard"])
    return Path(built).read_bytes()


def test_a_wheel_has_the_same_bytes_wherever_and_whenever_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    copy = tmp_path / "elsewhere"
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in SOURCES:
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored, copy_function=shutil.copyfile)
    for file in FILES:
        if (ROOT / file).exists():  # an unpacked sdist may lack one
            shutil.copyfile(ROOT / file, copy / file)
    for path in copy.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert wheel(copy, tmp_path / "second") == wheel(ROOT, tmp_path / "first")


def test_the_list_of_parts_names_what_an_appliance_needs_and_nothing_of_the_tests() -> None:
    found = {part["name"]: part["version"] for part in sbom()["components"]}
    listed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["server"]]
    asked = {re.split(r"[\[<>=; ]", need)[0].replace(".", "-") for need in listed}
    assert found.keys() >= asked - {"backports-zstd"}  # a part of Python from 3.14 on
    assert found.keys() >= {"botocore", "htmx.org", "swagger-ui-dist"}
    assert not found.keys() & {"pytest", "ruff", "mypy", "hatchling", "pyspark"}
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower().replace("_", "-")
    assert f"botocore=={found['botocore']}\n" in pins


def test_the_list_of_parts_says_which_part_brings_which() -> None:
    document = sbom()
    refs = {part["bom-ref"] for part in document["components"]}
    ours = document["metadata"]["component"]["bom-ref"]
    brings = {item["ref"]: set(item["dependsOn"]) for item in document["dependencies"]}
    assert set.union(*brings.values()) == refs
    assert any(ref.startswith("pkg:npm/htmx.org@") for ref in brings[ours])
    assert json.dumps(document) == json.dumps(sbom())


def test_the_audit_of_the_pins_fails_when_it_cannot_look() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\t.*bin/pip-audit (.*)$", makefile, re.MULTILINE)
    assert {"--strict", "constraints.txt"} <= set(line.split())
