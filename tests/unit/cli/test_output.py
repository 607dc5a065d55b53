"""Tables for people: aligned, with units, and safe to print."""

from __future__ import annotations

import json

import pytest

from seb_appliance.cli.errors import CommandError
from seb_appliance.cli.output import moment, outline, say_json, size, span, table
from seb_appliance.errors import printable


def test_a_table_has_names_over_its_columns_and_numbers_to_the_right() -> None:
    rows = [("a", 5, size(10), None), ("longer", 12_345, size(2048), "x")]
    assert table(("name", "n", "size", "y"), rows, "").splitlines() == [
        "name         n     size  y",
        "a            5     10 B  -",
        "longer  12,345  2.0 KiB  x",
    ]


def test_a_table_without_rows_says_so() -> None:
    assert table(("name",), [], "no topics") == "no topics"


def test_a_name_cannot_command_the_terminal() -> None:
    assert printable("a\x1b[2Jb\x07\n") == r"a\x1b[2Jb\x07\n"
    assert "\x1b" not in table(("name",), [("\x1b[2J",)], "")


def test_what_is_nested_too_deeply_for_json_is_told_in_one_sentence() -> None:
    nested: list[object] = []
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(CommandError, match="nested too deeply"):
        say_json(nested)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_sizes_have_units(count: int, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0.0 s"),
        (-0.04, "0.0 s"),
        (119, "119.0 s"),
        (120, "2 min"),
        (7_200, "2 h"),
        (172_800, "2 d"),
    ],
)
def test_durations_have_units(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


def test_times_are_shown_to_the_second() -> None:
    assert moment("2026-11-21T10:00:00.000123Z") == "2026-11-21 10:00:00Z"
    assert moment(None) is None


def test_neither_a_member_nor_its_value_can_command_the_terminal() -> None:
    shown = outline({"headers": {"\x1b]0;x\x07": "\x1b[2J"}})
    assert shown == "headers\n  \\x1b]0;x\\x07  \\x1b[2J"


def test_json_of_a_name_that_is_no_unicode_is_json(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    say_json({"object": "a\udcff"})
    assert json.loads(capfdbinary.readouterr().out) == {"object": "a\udcff"}
