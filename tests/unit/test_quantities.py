"""Durations and sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.quantities import (
    counted,
    duration_ms,
    format_duration,
    format_size,
    ratio,
    size_bytes,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("250ms", 250),
        ("10s", 10_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
    ],
)
def test_a_duration_has_a_unit(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("64KiB", 65_536),
        ("8MiB", 8 << 20),
        ("1GiB", 1 << 30),
    ],
)
def test_a_size_may_have_a_unit(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "10", "s", "1 s", "-1s", "1.5s", "1S", "1e3s", "1w", "٣s", "1s1s", "1KiB", "9" * 16 + "s"],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|has no unit"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["", "KiB", "-1", "1.5MiB", "1MB", "1 MiB", "1kib", "1s"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        size_bytes(text)


@given(st.integers(0, 10**14))
def test_what_is_shown_reads_back_as_the_same(amount: int) -> None:
    assert duration_ms(format_duration(amount)) == amount
    assert size_bytes(format_size(amount)) == amount


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (1, "topic", "1 topic"),
        (0, "topic", "0 topics"),
        (1_200, "entry", "1,200 entries"),
        (2, "API key", "2 API keys"),
    ],
)
def test_a_noun_is_in_the_plural_unless_there_is_one(number: int, noun: str, words: str) -> None:
    assert counted(number, noun) == words


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1e999", "-0.1"])
def test_what_is_no_ratio_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        ratio(text)


@pytest.mark.parametrize("number", [0.0, 0.5, 1.0, 2.0, 100.0])
def test_a_ratio_may_be_a_factor_above_1(number: float) -> None:
    assert ratio(f"{number:g}") == number
