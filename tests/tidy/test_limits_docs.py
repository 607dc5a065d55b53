"""docs/LIMITS.md is what each limits.py and the settings say, and each test it names exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from seb_appliance.quantities import format_duration, format_size
from seb_appliance.settings import SETTINGS
from tests.support.named_tests import is_there, named_tests

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "LIMITS.md").read_text(encoding="utf-8")
UNITS = {"KIB", "MIB"}
NAME = r"`((?:[a-z]+_limits\.)?[A-Z0-9_]+)`"
ROWS = re.findall(rf"^\| {NAME} \| ([^|]+) \|", TEXT, re.MULTILINE)
IMPORTED_AS = {
    "": "limits",
    "durable_streams": "stream_limits",
    "kafka": "kafka_limits",
    "mqtt": "mqtt_limits",
    "sockets": "socket_limits",
    "subscriptions": "push_limits",
    "syslog": "syslog_limits",
}


def declared() -> dict[str, float]:
    """The limits by the names that the code uses, those of limits.py without the module."""
    found = {}
    for path in (ROOT / "seb_appliance").rglob("limits.py"):
        where = path.relative_to(ROOT).with_suffix("")
        module = importlib.import_module(".".join(where.parts))
        prefix = f"{IMPORTED_AS['' if len(where.parts) == 2 else where.parts[-2]]}."
        for name in re.findall(r"^([A-Z0-9_]+): Final", path.read_text(), re.MULTILINE):
            found[prefix.removeprefix("limits.") + name] = getattr(module, name)
    return {name: limit for name, limit in found.items() if name not in UNITS}


LIMITS = declared()
BOUNDED = [s for s in SETTINGS if s.kind in ("duration", "size") and not s.client]


def value(name: str) -> str:
    """With its unit, which stands in the name."""
    number = LIMITS[name]
    words = re.split("[._]", name)
    if "BYTES" in words:
        return format_size(number)
    if "MS" in words:
        return format_duration(number)
    if "US" in words:
        return format_duration(number // 1_000)
    if "S" in words:
        return format_duration(round(number * 1_000))
    return "2^53-1" if name == "OFFSET_MAX" else f"{number:,}"


def test_every_limit_has_its_row_and_no_row_is_too_many() -> None:
    assert sorted(name for name, _ in ROWS) == sorted(LIMITS)


def test_the_limits_of_a_protocol_are_imported_by_one_name_everywhere() -> None:
    imports = re.compile(
        r"^from seb_appliance\.protocols\.(\w+) import limits(?: as (\w+))?$", re.MULTILINE
    )
    for folder in ("seb_appliance", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            for protocol, name in imports.findall(path.read_text()):
                assert name == IMPORTED_AS[protocol], path


def test_a_row_shows_the_limit_that_is_in_force() -> None:
    assert [(name, value(name)) for name, _ in ROWS] == ROWS


def test_every_test_that_the_table_names_exists() -> None:
    named = named_tests(TEXT)
    assert len(named) > len(BOUNDED)
    for path, test in named:
        assert is_there(path, test), f"{path}::{test}"


def test_what_the_table_says_is_shown_at_its_edge_is_tried_there() -> None:
    tried = (ROOT / "tests" / "http" / "test_limits.py").read_text(encoding="utf-8")
    for test, form in (
        ("test_a_request_at_its_limit_is_taken_and_one_beyond_it_refused", 'Edge("{}"'),
        ("test_what_there_is_enough_of_is_not_made", '    "{}": ('),
    ):
        for name in re.findall(rf"^\| `([A-Z0-9_]+)` .*::{test}` \|$", TEXT, re.MULTILINE):
            assert form.format(name) in re.sub(r"Edge\(\s+", "Edge(", tried), name


def test_every_share_has_its_row_and_no_row_is_too_many() -> None:
    code = [path.read_text() for path in (ROOT / "seb_appliance").rglob("*.py")]
    making = r'\.declare(?:_forgetting)?\(\s*"(\w+)",\s*(?:limits\.|settings\.)?([\w.]+)'
    found = [pair for text in code for pair in re.findall(making, text)]
    rows = re.findall(r"^\| `([a-z_]+)` \| `([\w.]+)` \| [^|]* \| [^|]* \|$", TEXT, re.MULTILINE)
    assert sorted(rows) == sorted(found)


def test_no_share_is_made_without_being_declared() -> None:
    makers = {"broker/shares.py", "state/bounded.py"}  # the latter only counts
    for path in (ROOT / "seb_appliance").rglob("*.py"):
        if path.relative_to(ROOT / "seb_appliance").as_posix() not in makers:
            assert not re.search(r"\b(?:Forgetting)?Shares\(", path.read_text()), path


def test_every_setting_that_bounds_something_has_its_row() -> None:
    rows = re.findall(r"^\| `([a-z0-9_]+)` \| ([^|`]*) \| ([^|]*) \|", TEXT, re.MULTILINE)
    assert rows == [(s.name, s.words(s.default), s.range_words) for s in BOUNDED]
