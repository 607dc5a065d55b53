"""docs/KAFKA.md lists the APIs, the settings and the errors as they are."""

from __future__ import annotations

import re
from pathlib import Path

from seb_appliance.protocols.kafka import configs, errors
from seb_appliance.protocols.kafka.wire.codec import APIS

TEXT = (Path(__file__).parents[2] / "docs/KAFKA.md").read_text(encoding="utf-8")


def test_every_api_has_its_row_with_its_versions() -> None:
    found = re.findall(r"^\| (\w+) \((\d+)\) \| (\d+)(?: to (\d+))? \|$", TEXT, re.MULTILINE)
    rows = {(name, int(key), int(low), int(high or low)) for name, key, low, high in found}
    assert rows == {(api.name, api.key, api.versions[0], api.versions[-1]) for api in APIS.values()}


def test_every_error_of_the_broker_has_its_row() -> None:
    rows = re.findall(r"^\| (`.+) \| (\w+) \((-?\d+)\) \|$", TEXT, re.MULTILINE)
    found = {
        code: (name, int(number))
        for codes, name, number in rows
        for code in re.findall(r"`(\w+)`", codes)
        if "where" not in codes
    }
    assert found == {code: (one.name, one.value) for code, one in errors.BY_CODE.items()}


def test_every_setting_has_its_row() -> None:
    for name, (ours, _) in configs.NAMES.items():
        (row,) = [
            line for line in TEXT.splitlines() if line.startswith("|") and f"`{name}`" in line
        ]
        assert f"`{ours}`" in row
