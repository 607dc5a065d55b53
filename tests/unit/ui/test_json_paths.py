"""Paths into JSON values, and comparisons with what is there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.errors import BadRequestError
from seb_appliance.ui.records.json_paths import condition_of, paths_of

BILL = {
    "total": 120.5,
    "paid": True,
    "note": None,
    "customer": {"name": "Zoë & Co", "e-mail": "z@example.org"},
    "lines": [{"unit price": 3}, {"unit price": 4}],
}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("$.total", "120.5"),
        ("customer.name", "Zoë & Co"),
        ("$.customer.e-mail", "z@example.org"),
        ("lines[1]['unit price']", "4"),
        ('$.lines[-2]["unit price"]', "3"),
        ("$['paid']", "true"),
        ("note", "null"),
        ("lines[2]", ""),
        ("total.x", ""),
        ("none", ""),
    ],
)
def test_a_path_leads_to_one_value_or_to_none(path: str, text: str) -> None:
    (found,) = paths_of(path)
    assert found.text(BILL) == text


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ("$.total > 120", True),
        ("$.total>=120.5", True),
        ("$.total < 120", False),
        ("total != 120", True),
        ("customer.name = Zoë & Co", True),
        ('customer.name == "Zoë & Co"', True),
        ("customer.name ~ Zoë", True),
        ("total ~ 20", True),
        ("total > text", False),
        ("total != text", True),
        ("paid = true", True),
        ("paid = 1", False),
        ("note = null", True),
        ("note > null", False),
        ("note", True),
        ("none", False),
        ("none != 1", False),
    ],
)
def test_a_condition_compares_values_of_one_kind(condition: str, fits: bool) -> None:
    assert condition_of(condition).fits(BILL) is fits


@pytest.mark.parametrize("text", ["", "[", "a b", "$.a is 3", "$x", "a,b = 1"])
def test_what_is_no_condition_is_refused_in_words(text: str) -> None:
    with pytest.raises(BadRequestError):
        condition_of(text)


@given(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_any_text_is_a_condition_or_is_refused(text: str, document: object) -> None:
    try:
        condition_of(text).fits(document)
    except BadRequestError:
        return


def test_columns_are_paths_with_commas_between_them() -> None:
    found = paths_of(" total, $.customer.name ,")
    assert [path.name for path in found] == ["total", "customer.name"]
    with pytest.raises(BadRequestError):
        paths_of("total > 3")
