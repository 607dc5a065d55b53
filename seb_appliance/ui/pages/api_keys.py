"""API keys: make, change, rotate, disable, revoke. A secret is shown once, by the POST itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits, quantities
from seb_appliance.broker.topics.names import Patterns, check_pattern
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import BadParameterError, BadRequestError, LastAdminKeyError
from seb_appliance.formats.api_key_members import GRANT_OPERATIONS, QUOTAS, Grant, Quotas
from seb_appliance.ui.forms import Form, parsed, time_field, time_us, whole
from seb_appliance.ui.page_context import AnyRequest, Change, Desk, FormProblem, Visit
from seb_appliance.ui.units import count

_LIST_FIELDS: Final = frozenset({"filter", "page"})
_PER_PAGE: Final = 50
_PARTS: Final = frozenset({"grant-rows"})
_OVERLAPS: Final = ("0s", "1h", "24h", "7d", "30d")
_PATH: Final = "/ui/api-keys"
Refused = (BadRequestError, BadParameterError, LastAdminKeyError)


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    return [*_showing(desk), *_making(desk), *_changing(desk)]


def _showing(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/api-keys")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request, _LIST_FIELDS)
        words = visit.query.text("filter")
        number = whole(visit.query.text("page", "1"), "page", smallest=1)
        found = [key for key in desk.broker.access.all() if words in key.name + key.api_key_id]
        first = (number - 1) * _PER_PAGE
        keys = found[first : first + _PER_PAGE]
        used = desk.broker.access.last_used
        return desk.page(
            visit,
            "api_keys",
            parts=frozenset({"api-key-rows"}),
            lines=[
                (key, state_of(key, desk.clock.wall_us()), used.get(key.api_key_id)) for key in keys
            ],
            words=words,
            total=len(found),
            before=_list_path(words, number - 1) if number > 1 else "",
            following=_list_path(words, number + 1) if found[first + _PER_PAGE :] else "",
        )

    @get("/api-keys/{api_key_id:str}")
    async def show_one(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request)
        return await _page(desk, visit, desk.broker.access.get(_id(request)))

    return [show, show_one]


def _making(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/api-keys/new")
    async def ask(request: AnyRequest) -> ASGIApp:
        return await _new(desk, desk.enter(request), Form([]))

    @post("/api-keys/new")
    @desk.changes(FIELDS)
    async def create(_request: AnyRequest, change: Change) -> ASGIApp:
        visit, form = change.visit, change.form
        if form.text("step") != "save":
            return await _new(desk, visit, form)
        try:
            members = members_of(form)
            key, secret = await desk.broker.access.create(
                members["name"],
                members["grants"],
                members["expires_us"],
                description=members["description"],
                quotas=quotas_of(members),
                by=visit.actor,
            )
        except Refused as error:
            return await _new(desk, visit, form, error.detail)
        return desk.page(visit, "api_key_secret", status=201, key=key, secret=secret, rotated=False)

    return [ask, create]


def _changing(desk: Desk) -> list[HTTPRouteHandler]:
    access = desk.broker.access

    @post("/api-keys/{api_key_id:str}")
    @desk.changes(FIELDS)
    async def change(request: AnyRequest, asked: Change) -> ASGIApp:
        key = access.get(_id(request))
        if asked.form.text("step") != "save":
            return await _page(desk, asked.visit, key, asked.form)
        try:
            members = members_of(asked.form)
            if asked.form.text("expires") == time_field(key.expires_us):
                del members["expires_us"]  # the field shows no fractions of seconds
            await access.change(key.api_key_id, members, asked.visit.actor)
        except Refused as error:
            return await _page(desk, asked.visit, key, asked.form, error.detail)
        return _done(desk, asked, key, "What you changed is in force.")

    @post("/api-keys/{api_key_id:str}/disabled")
    @desk.changes(frozenset({"disabled"}))
    async def disable(request: AnyRequest, asked: Change) -> ASGIApp:
        key, disabled = access.get(_id(request)), asked.form.text("disabled") == "yes"
        try:
            await access.change(key.api_key_id, {"disabled": disabled}, asked.visit.actor)
        except Refused as error:
            return await _page(desk, asked.visit, key, None, error.detail)
        words = "It is disabled: whoever uses it is refused." if disabled else "It works again."
        return _done(desk, asked, key, words)

    @post("/api-keys/{api_key_id:str}/rotate")
    @desk.changes(frozenset({"overlap"}))
    async def rotate(request: AnyRequest, asked: Change) -> ASGIApp:
        key, overlap = access.get(_id(request)), asked.form.text("overlap")
        if overlap not in _OVERLAPS:
            return await _page(desk, asked.visit, key, None, f"The overlap is one of {_OVERLAPS}.")
        overlap_ms = quantities.duration_ms(overlap)
        key, secret = await access.rotate(key.api_key_id, overlap_ms, asked.visit.actor)
        return desk.page(
            asked.visit, "api_key_secret", status=201, key=key, secret=secret, rotated=True
        )

    @post("/api-keys/{api_key_id:str}/revoke")
    @desk.changes(frozenset({"id"}))
    async def revoke(request: AnyRequest, asked: Change) -> ASGIApp:
        key = access.get(_id(request))
        if asked.form.text("id") != key.api_key_id:
            words = "This is not the id of the API key; nothing was revoked."
            return await _page(desk, asked.visit, key, None, words)
        try:
            await access.revoke(key.api_key_id, asked.visit.actor)
        except Refused as error:
            return await _page(desk, asked.visit, key, None, error.detail)
        words = f"The API key {key.api_key_id} is revoked, at once and for ever."
        return desk.see_other(asked.visit, _PATH, words)

    return [change, disable, rotate, revoke]


def state_of(key: ApiKeyView, now_us: int) -> str:
    if key.expires_us is not None and key.expires_us <= now_us:
        return "expired"
    return "disabled" if key.disabled else "in force"


def _id(request: AnyRequest) -> str:
    api_key_id: str = request.scope["path_params"]["api_key_id"]
    return api_key_id


def _list_path(words: str, number: int) -> str:
    given = {"filter": words, "page": str(number) if number > 1 else ""}
    query = urlencode({name: value for name, value in given.items() if value})
    return f"{_PATH}?{query}" if query else _PATH


def _done(desk: Desk, asked: Change, key: ApiKeyView, words: str) -> ASGIApp:
    return desk.see_other(asked.visit, f"{_PATH}/{key.api_key_id}", words)


async def _new(desk: Desk, visit: Visit, form: Form, refused: str = "") -> ASGIApp:
    values = values_of(form)
    return desk.page(
        visit,
        "api_key_new",
        parts=_PARTS,
        status=422 if refused else 200,
        values=values,
        quotas=QUOTAS.values(),
        rows=await rows_of(form, desk.broker.topic_lists.names),
        path=f"{_PATH}/new",
        problem=FormProblem(refused, values) if refused else None,
    )


async def _page(
    desk: Desk, visit: Visit, key: ApiKeyView, form: Form | None = None, refused: str = ""
) -> ASGIApp:
    """One API key, with what `form` asks for instead of what is in force."""
    values = values_of_key(key) if form is None else values_of(form)
    names = desk.broker.topic_lists.names
    asked = rows_of_key(key, names) if form is None else rows_of(form, names)
    rows = await asked
    now_us = desk.clock.wall_us()
    overlap_us = key.overlap_until_us
    return desk.page(
        visit,
        "api_key",
        parts=_PARTS,
        status=422 if refused else 200,
        key=key,
        state=state_of(key, now_us),
        last_used_us=desk.broker.access.last_used.get(key.api_key_id),
        overlap_us=overlap_us if overlap_us is not None and overlap_us > now_us else None,
        overlaps=_OVERLAPS,
        values=values,
        quotas=QUOTAS.values(),
        rows=rows,
        path=f"{_PATH}/{key.api_key_id}",
        problem=FormProblem(refused, values) if refused else None,
    )


# The form of an API key: its grants, with the topics that each matches now.


FIELDS: Final = frozenset(
    {"name", "description", "expires", *QUOTAS, "operation", "topics", "groups", "step"}
)
_EMPTY_ROWS: Final = 2
_TOPICS_NAMED: Final = 6
_AT_ONCE: Final = 100  # names matched without a break: at worst a millisecond


@dataclass(frozen=True, slots=True)
class GrantRow:
    """One row of the form, as it was given. `matches`: which topics it is for, in words."""

    operation: str
    topics: str
    groups: str
    matches: str


def values_of(form: Form) -> dict[str, str]:
    """The fields that are there once, to show them again."""
    return {name: form.text(name) for name in ("name", "description", "expires", *QUOTAS)}


def values_of_key(key: ApiKeyView) -> dict[str, str]:
    """An API key as the form holds it."""
    given = {name: getattr(key.quotas, name) for name in QUOTAS}
    return {
        "name": key.name,
        "description": key.description,
        "expires": time_field(key.expires_us),
        **{name: "" if n is None else QUOTAS[name].text(n) for name, n in given.items()},
    }


async def rows_of(form: Form, topics: Callable[[], Sequence[str]]) -> list[GrantRow]:
    """The grants of a form, and empty rows for more. `topics`: names of all there are, asked for
    only if there is a grant."""
    return await _rows(_given(form), topics)


async def rows_of_key(key: ApiKeyView, topics: Callable[[], Sequence[str]]) -> list[GrantRow]:
    return await _rows([(one.operation, one.topics, one.groups) for one in key.grants], topics)


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
        raise BadRequestError("Choose an operation: an API key without a grant can do nothing.")
    return {
        "name": name,
        "description": description,
        "grants": grants,
        "expires_us": time_us(form.text("expires"), "The expiry"),
        "quotas": {one.name: parsed(one, form) for one in QUOTAS.values()},
    }


def quotas_of(members: dict[str, Any]) -> Quotas:
    return Quotas(**members["quotas"])


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


async def _rows(
    grants: Sequence[tuple[str, str, str]], topics: Callable[[], Sequence[str]]
) -> list[GrantRow]:
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
            words = "everything, API keys and users included"
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
            return "no topic that is there now"
        left_out = self.topics - len(self.first)
        more = f" and {count(left_out)} more" if left_out else ""
        return f"{count(self.topics)} of {count(of)} topics: {', '.join(self.first)}{more}"
