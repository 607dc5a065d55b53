"""API keys: create, change, rotate, disable, revoke. The POST itself shows a secret, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter as of
from typing import Any, Final

from litestar.types import ASGIApp

from seb_appliance import limits, quantities
from seb_appliance.broker.topics.names import Patterns, check_pattern
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import BadParameterError, BadRequestError
from seb_appliance.formats.api_key_members import GRANT_OPERATIONS, QUOTAS, Grant, Quotas
from seb_appliance.quantities import counted
from seb_appliance.ui.forms import Form, parsed, time_field, time_us
from seb_appliance.ui.lists import FIELDS as LIST_FIELDS
from seb_appliance.ui.lists import Column, as_they_are, having, in_lines, linked, listed, quiet
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.units import ago, count, pill, time_tag

routes = Routes()
_GRANTS_SHOWN: Final = 3  # in a list
_OVERLAPS: Final = ("0s", "1h", "24h", "7d", "30d")
_PATH: Final = "/ui/api-keys"
_SINGLE: Final = ("name", "description", "expires", *QUOTAS)  # fields with one value
FIELDS: Final = frozenset({*_SINGLE, "operation", "topics", "groups", "step"})
_UNLIMITED: Final = {name: one.unset for name, one in QUOTAS.items()}
_EMPTY_ROWS: Final = 2
_TOPICS_NAMED: Final = 6
_AT_ONCE: Final = 100  # names matched without yielding to the event loop: up to a millisecond


@dataclass(frozen=True, slots=True)
class GrantRow:
    """One row of the form, as it was given. `matches`: which topics it is for, in words."""

    operation: str
    topics: str
    groups: str
    matches: str


@routes.get("/api-keys", LIST_FIELDS)
async def show(visit: Visit) -> ASGIApp:
    access, words = visit.broker.access, visit.form.text("filter")
    keys = await having(words, access.all(), lambda key: f"{key.name} {key.api_key_id}")
    listing = await listed(visit, "api-key-rows", _columns(visit), keys, as_they_are)
    return visit.page("api_keys", parts=["api-key-rows"], address=listing.address, listing=listing)


def _columns(visit: Visit) -> list[Column[ApiKeyView, ApiKeyView]]:
    now_us, used = visit.now_us, visit.broker.access.last_used
    never = quiet("never")

    def used_us(key: ApiKeyView) -> int | None:
        return used.get(key.api_key_id)

    def expires(key: ApiKeyView) -> str:
        return never if key.expires_us is None else time_tag(key.expires_us)

    def state(key: ApiKeyView) -> str:
        return state_of(key, now_us)

    return [
        Column(
            "name", "Name", lambda key: linked(key.name, f"{_PATH}/{key.api_key_id}"), of("name")
        ),
        Column("id", "Id", of("api_key_id"), of("api_key_id"), "key"),
        Column("grants", "Grants", _grants, lambda key: len(key.grants), "value"),
        Column("state", "State", lambda key: pill(state(key)), state, "nowrap"),
        Column("expires", "Expires", expires, of("expires_us"), "nowrap"),
        Column(
            "used",
            "Last used",
            lambda key: ago(used_us(key), now_us) if used_us(key) else never,
            used_us,
            "nowrap",
        ),
        Column(
            "created", "Created", lambda key: time_tag(key.created_us), of("created_us"), "nowrap"
        ),
        Column("description", "Description", of("description"), of("description"), "value", False),
    ]


def _grants(key: ApiKeyView) -> str:
    """The first ones."""
    shown = [grant.text() for grant in key.grants[:_GRANTS_SHOWN]]
    left_out = len(key.grants) - len(shown)
    return in_lines([*shown, *([quiet(f"and {count(left_out)} more")] if left_out else [])])


async def _new(visit: Visit, problem: FormProblem | None = None) -> ASGIApp:
    form = visit.form
    return visit.page(
        "api_key_new",
        parts=["grant-rows"],
        values={name: form.text(name) for name in _SINGLE},
        quotas=QUOTAS,
        unlimited=_UNLIMITED,
        rows=await rows_of(_given(form), visit.broker.topics.names),
        path=f"{_PATH}/new",
        problem=problem,
    )


async def _page(
    visit: Visit, api_key_id: str, *, problem: FormProblem | None = None, with_form: bool = False
) -> ASGIApp:
    """One API key; `with_form`: with the values of the submitted form instead of its own."""
    key, form, now_us = visit.broker.access.get(api_key_id), visit.form, visit.now_us
    own = [(one.operation, one.topics, one.groups) for one in key.grants]
    overlap_us = key.overlap_until_us
    return visit.page(
        "api_key",
        parts=["grant-rows"],
        key=key,
        state=state_of(key, now_us),
        last_used_us=visit.broker.access.last_used.get(key.api_key_id),
        overlap_us=overlap_us if overlap_us is not None and overlap_us > now_us else None,
        overlaps=_OVERLAPS,
        values={name: form.text(name) for name in _SINGLE} if with_form else values_of_key(key),
        quotas=QUOTAS,
        unlimited=_UNLIMITED,
        rows=await rows_of(_given(form) if with_form else own, visit.broker.topics.names),
        path=f"{_PATH}/{key.api_key_id}",
        problem=problem,
    )


@routes.get("/api-keys/{api_key_id:str}")
async def show_one(visit: Visit, api_key_id: str) -> ASGIApp:
    return await _page(visit, api_key_id)


@routes.get("/api-keys/new")
async def ask(visit: Visit) -> ASGIApp:
    return await _new(visit)


@routes.post("/api-keys/new", FIELDS, again=_new)
async def create(visit: Visit) -> ASGIApp:
    if visit.form.text("step") != "save":
        return await _new(visit)
    members = members_of(visit.form)
    key, secret = await visit.broker.access.create(
        members["name"],
        members["grants"],
        members["expires_us"],
        description=members["description"],
        quotas=Quotas(**members["quotas"]),
        by=visit.actor,
    )
    return _secret_page(visit, key, secret, rotated=False)


@routes.post("/api-keys/{api_key_id:str}", FIELDS, again=partial(_page, with_form=True))
async def change(visit: Visit, api_key_id: str) -> ASGIApp:
    key = visit.broker.access.get(api_key_id)
    if visit.form.text("step") != "save":
        return await _page(visit, api_key_id, with_form=True)
    members = members_of(visit.form)
    if visit.form.text("expires") == time_field(key.expires_us):
        del members["expires_us"]  # the field shows no fractions of seconds
    await visit.broker.access.change(key.api_key_id, members, visit.actor)
    return visit.see_other(f"{_PATH}/{api_key_id}", "The changes are saved.")


@routes.post("/api-keys/{api_key_id:str}/disabled", {"disabled"}, again=_page)
async def disable(visit: Visit, api_key_id: str) -> ASGIApp:
    key, disabled = visit.broker.access.get(api_key_id), visit.form.text("disabled") == "yes"
    await visit.broker.access.change(key.api_key_id, {"disabled": disabled}, visit.actor)
    words = "The API key is disabled." if disabled else "The API key is enabled."
    return visit.see_other(f"{_PATH}/{api_key_id}", words)


@routes.post("/api-keys/{api_key_id:str}/rotate", {"overlap"}, again=_page)
async def rotate(visit: Visit, api_key_id: str) -> ASGIApp:
    key, overlap = visit.broker.access.get(api_key_id), visit.form.text("overlap")
    if overlap not in _OVERLAPS:
        raise BadRequestError(f"The overlap is one of {', '.join(_OVERLAPS)}.")
    overlap_ms = quantities.duration_ms(overlap)
    key, secret = await visit.broker.access.rotate(key.api_key_id, overlap_ms, visit.actor)
    return _secret_page(visit, key, secret, rotated=True)


def _secret_page(visit: Visit, key: ApiKeyView, secret: str, *, rotated: bool) -> ASGIApp:
    topic = _written_topic(key, visit.broker.topics.names()[:_AT_ONCE])
    return visit.page(
        "api_key_secret", status=201, key=key, secret=secret, rotated=rotated, topic=topic
    )


def _written_topic(key: ApiKeyView, names: Sequence[str]) -> str | None:
    """A topic for a test that the API key may write to, of `names` if one fits; None if it may not
    write at all."""
    for grant in key.grants:
        if grant.operation in ("produce", "admin"):
            pattern, made = Patterns([grant.topics]), grant.topics.replace("**", "*")
            found = (name for name in names if pattern.cover(name))
            return next(found, made.replace("*", "greetings"))
    return None


@routes.post("/api-keys/{api_key_id:str}/revoke", {"id"}, again=_page)
async def revoke(visit: Visit, api_key_id: str) -> ASGIApp:
    key = visit.broker.access.get(api_key_id)
    if visit.form.text("id") != key.api_key_id:
        raise BadRequestError("This is not the id of the API key; nothing was revoked.")
    await visit.broker.access.revoke(key.api_key_id, visit.actor)
    return visit.see_other(_PATH, f"The API key {key.api_key_id} is revoked.")


def state_of(key: ApiKeyView, now_us: int) -> str:
    if key.expires_us is not None and key.expires_us <= now_us:
        return "expired"
    return "disabled" if key.disabled else "active"


def values_of_key(key: ApiKeyView) -> dict[str, str]:
    """An API key as the form holds it."""
    given = {name: getattr(key.quotas, name) for name in QUOTAS}
    return {
        "name": key.name,
        "description": key.description,
        "expires": time_field(key.expires_us),
        **{name: "" if n is None else QUOTAS[name].text(n) for name, n in given.items()},
    }


def members_of(form: Form) -> dict[str, Any]:
    """What the form asks for, as `Access.change` takes it. Raises BadRequestError,
    BadParameterError."""
    name, description = form.text("name"), form.text("description")
    if not 1 <= len(name) <= limits.API_KEY_NAME_LENGTH_MAX:
        raise BadRequestError(f"A name has 1 to {limits.API_KEY_NAME_LENGTH_MAX} characters.")
    if len(description) > limits.API_KEY_DESCRIPTION_LENGTH_MAX:
        raise BadRequestError(
            f"A description has at most {limits.API_KEY_DESCRIPTION_LENGTH_MAX} characters."
        )
    grants = tuple(_grant(*row) for row in _given(form))
    if not grants:
        raise BadRequestError("Choose an operation: an API key needs at least one grant.")
    return {
        "name": name,
        "description": description,
        "grants": grants,
        "expires_us": time_us(form.text("expires"), "The expiry"),
        "quotas": {one.name: parsed(one, form) for one in QUOTAS.values()},
    }


def _given(form: Form) -> list[tuple[str, str, str]]:
    """Operation, topics and groups of each row that has an operation. Raises BadRequestError."""
    columns = [form.all(name) for name in ("operation", "topics", "groups")]
    if len({len(column) for column in columns}) != 1:
        raise BadRequestError("Each grant has an operation, topics and groups.")
    rows = [(row[0], row[1].strip(), row[2].strip()) for row in zip(*columns, strict=True)]
    return [row for row in rows if row[0]]


def _grant(operation: str, topics: str, groups: str) -> Grant:
    for known in GRANT_OPERATIONS:
        if known == operation:
            return Grant(
                operation=known,
                topics=check_pattern(topics or "**"),
                groups=check_pattern(groups or "**"),
            )
    raise BadRequestError(f"An operation is one of {', '.join(GRANT_OPERATIONS)}.")


async def rows_of(
    grants: Sequence[tuple[str, str, str]], topics: Callable[[], Sequence[str]]
) -> list[GrantRow]:
    """Rows for grants (operation, topics, groups), and empty rows for more. `topics` gives the
    names of all topics; it is called only if there is a grant."""
    matched: dict[str, _Matched] = {}
    wrong: dict[str, str] = {}
    for pattern in {pattern or "**" for _, pattern, _ in grants}:
        try:
            matched[check_pattern(pattern)] = _Matched()
        except BadParameterError as error:
            wrong[pattern] = error.detail
    patterns = Patterns(matched)
    names = topics() if matched else ()
    # One walk for all patterns, some at a time: there may be 10,000 topics and 100 grants.
    for begin in range(0, len(names), _AT_ONCE):
        for name in names[begin : begin + _AT_ONCE]:
            for number in patterns.match(name):
                matched[patterns.patterns[number]].add(name)
        await asyncio.sleep(0)
    rows = []
    for operation, pattern, groups in grants:
        words = wrong.get(pattern) or matched[pattern or "**"].words(len(names))
        if operation == "admin":
            words = "everything, including API keys and users"
        rows.append(GrantRow(operation, pattern, groups, words))
    return rows + [GrantRow("", "", "", "")] * _EMPTY_ROWS


@dataclass(slots=True)
class _Matched:
    """Topics that a pattern matches: how many, and the first few."""

    topics: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.topics += 1
        if self.topics <= _TOPICS_NAMED:
            self.first.append(name)

    def words(self, of: int) -> str:
        if not self.topics:
            return "no existing topic"
        left_out = self.topics - len(self.first)
        more = f" and {count(left_out)} more" if left_out else ""
        return f"{count(self.topics)} of {counted(of, 'topic')}: {', '.join(self.first)}{more}"
