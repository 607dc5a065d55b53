"""What pyproject.toml says is true, and what a wheel needs is in it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BUILD = PROJECT["tool"]["hatch"]["build"]["targets"]


def requirements() -> list[str]:
    extras = PROJECT["project"]["optional-dependencies"]
    listed = [*PROJECT["project"]["dependencies"], *extras["server"]]
    listed += [*extras["bench"], *extras["spark"], *extras["test"]]
    return [re.split(r"[\[<>=; ]", line)[0].lower().replace("_", "-") for line in listed]


def test_what_spark_needs_is_installed_beside_it() -> None:
    """The Makefile installs Spark in a process of its own, and not the part that names it."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (beside,) = re.findall(r"^BESIDE_SPARK := \.\[(.*)\]$", makefile, re.MULTILINE)
    (parts,) = re.findall(r"^TEST_PARTS := \.\[(.*)\]$", makefile, re.MULTILINE)
    assert {*beside.split(","), "spark"} == {*parts.split(",")}
    extras = PROJECT["project"]["optional-dependencies"]
    installed = [line for part in beside.split(",") for line in extras[part]]
    names = {re.split(r"[<>=;]", line)[0] for line in installed}
    assert {re.split(r"[<>=;]", line)[0] for line in extras["spark"]} - names == {"pyspark"}


def test_the_wheel_carries_what_lies_beside_the_package() -> None:
    forced = BUILD["wheel"]["force-include"]
    assert forced == {
        name: f"seb_appliance/_bundled/{name}"
        for name in ("examples/package-log", "migrations", "templates")
    }
    assert any((ROOT / "migrations" / "versions").glob("*.py"))
    assert any((ROOT / "templates").rglob("*.html"))


def test_the_sdist_carries_what_the_wheel_is_made_of_and_the_tests() -> None:
    included = set(BUILD["sdist"]["only-include"])
    assert included >= {"seb_appliance", "migrations", "templates", "tests", "constraints.txt"}
    for name in included:
        assert (ROOT / name).exists(), name


_HASHED = (
    r"([\w.-]+==[\w.]+)(?: ; [^\\\n]*| *) \\\n"
    r"(?:    --hash=sha256:[0-9a-f]{64}(?: \\\n)?)+"
)


def test_every_requirement_has_a_range_and_a_pin() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    pinned = {pin.partition("==")[0].lower().replace("_", "-").replace(".", "-") for pin in pins}
    for name in requirements():
        assert name.replace(".", "-") in pinned, name


@pytest.mark.parametrize("name", ["appliance", "ansible"])
def test_what_is_installed_on_a_machine_has_the_pins_and_their_hashes(name: str) -> None:
    pins = set((ROOT / "constraints.txt").read_text(encoding="utf-8").lower().split())
    text = (ROOT / "ansible" / f"requirements-{name}.txt").read_text(encoding="utf-8")
    for block in re.split(r"\n(?=\S)", text.strip()):
        found = re.fullmatch(_HASHED, block)
        assert found, block[:200]
        assert found[1].replace("-", "_") in {pin.replace("-", "_") for pin in pins}


def test_the_base_install_is_light() -> None:
    names = {re.split(r"[<>=;]", line)[0] for line in PROJECT["project"]["dependencies"]}
    assert names == {"backports.zstd", "click", "crc32c", "msgspec", "pyyaml"}
