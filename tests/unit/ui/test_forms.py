"""What a form may hold, and who may send one."""

from __future__ import annotations

import pytest

from seb_appliance import limits
from seb_appliance.errors import BadRequestError, ForbiddenError
from seb_appliance.ui import answers, forms
from seb_appliance.ui.page_context import check_same_origin

KNOWN = frozenset({"a", "b"})


def test_a_form_gives_what_was_sent() -> None:
    form = forms.parse(b"a=+x%C3%A9+&b=1&b=2", KNOWN)
    assert form.text("a") == "xé"
    assert form.raw("a") == " xé "
    assert form.all("b") == ["1", "2"]
    assert form.text("c", "none") == "none"
    assert forms.parse(b"", KNOWN).values == {}


@pytest.mark.parametrize(
    "data",
    [
        b"a=%ff",
        b"a=%00",
        b"c=1",
        b"a",
        b"\xff=1",
        b"&".join([b"a=1"] * (limits.FORM_FIELDS_MAX + 1)),
    ],
)
def test_what_is_no_form_of_ours_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequestError):
        forms.parse(data, KNOWN)


def test_a_field_that_comes_twice_is_refused_where_one_is_wanted() -> None:
    with pytest.raises(BadRequestError, match="more than once"):
        forms.parse(b"a=1&a=2", KNOWN).text("a")


HOST = {b"host": b"seb.example.org"}


@pytest.mark.parametrize(
    "headers",
    [
        {b"sec-fetch-site": b"same-origin"},
        {b"sec-fetch-site": b"same-origin", b"origin": b"https://evil.example"},  # cannot be both
        {**HOST, b"origin": b"https://seb.example.org"},
        {b"host": b"127.0.0.1:51313", b"origin": b"http://127.0.0.1:51313"},
    ],
)
def test_a_page_of_ours_may_change_things(headers: dict[bytes, bytes]) -> None:
    check_same_origin(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        HOST,
        {**HOST, b"sec-fetch-site": b"cross-site"},
        {**HOST, b"sec-fetch-site": b"same-site"},
        {**HOST, b"sec-fetch-site": b"none"},
        {**HOST, b"sec-fetch-site": b"cross-site", b"origin": b"https://seb.example.org"},
        {**HOST, b"origin": b"https://evil.example"},
        {**HOST, b"origin": b"null"},
        {**HOST, b"origin": b""},
        {**HOST, b"origin": b"https://seb.example.org.evil.example"},
        {**HOST, b"origin": b"https://seb.example.org:8443"},
        {**HOST, b"origin": b"ftp://seb.example.org"},
        {**HOST, b"origin": b"https://[broken"},
        {b"host": b"", b"origin": b"https://"},
    ],
)
def test_another_site_may_not(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(ForbiddenError):
        check_same_origin(headers)


@pytest.mark.parametrize("path", ["/ui", "/ui/audit", "/ui/audit?who=user%3Aadmin&before=7"])
def test_the_way_back_is_a_page_of_ours(path: str) -> None:
    assert answers.local_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "/", "//evil.example", "https://evil.example", "/ui//evil", "/ui\\evil", "/uix",
     "/ui/a\r\nset-cookie: x", "javascript:alert(1)"],
)  # fmt: skip
def test_any_other_way_back_is_the_start(path: str) -> None:
    assert answers.local_path(path) == "/ui"
