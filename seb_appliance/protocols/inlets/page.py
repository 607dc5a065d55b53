"""The pages of inlets: the URL to paste at the sender, the last deliveries, and every setting."""

from __future__ import annotations

from functools import partial
from operator import attrgetter as of
from typing import Any, Final

import msgspec
from litestar.types import ASGIApp

from seb_appliance.api.server.options import SecretBox
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import BadRequestError, NotFoundError
from seb_appliance.formats.api_key_members import QUOTAS
from seb_appliance.protocols.inlets.inlets import KIND, Inlet, InletWanted, StoredInlet, inlet_of
from seb_appliance.protocols.inlets.managing import save
from seb_appliance.protocols.inlets.settings import SETTINGS, VERIFY, InletSettings
from seb_appliance.ui.app import Section
from seb_appliance.ui.forms import Form, parsed
from seb_appliance.ui.lists import FIELDS, Column, as_they_are, having, linked, listed, quiet
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.units import ago

_HIDDEN: Final = "…"
_PATH: Final = "/ui/inlets"
_NEW: Final = "/ui/new-inlet"  # below _PATH it would be the page of an inlet called so
_FIRST: Final = ("topic", "scheme", "description", "body", "key")
# In the order of the form; those in `_MORE` are folded away until one of them is set.
_ALL: Final = {**VERIFY, **SETTINGS, **QUOTAS}
_DECLARED: Final = {name: _ALL[name] for name in dict.fromkeys((*_FIRST, *_ALL))}
_MORE: Final = frozenset(_ALL) - set(_FIRST)
_FIELDS: Final = frozenset({*_DECLARED, "secret"})
_CREATES: Final = {
    "field": "inlet",
    "label": "Name, the end of the URL",
    "secret": "Secret of the sender (empty: a random one)",
    "button": "Create the inlet",
}


def section(box: SecretBox) -> Section:
    """For the navigation of the admin page."""
    routes = Routes()
    routes.get("/inlets", FIELDS)(_show)
    routes.get("/new-inlet")(_new)
    routes.post("/new-inlet", _FIELDS | {"inlet"}, again=_new)(partial(_create, box))
    routes.get("/inlets/{inlet:str}")(_one)
    routes.post("/inlets/{inlet:str}", _FIELDS, again=_one)(partial(_change, box))
    routes.post("/inlets/{inlet:str}/rotate", {"secret"}, again=_one)(partial(_rotate, box))
    routes.post("/inlets/{inlet:str}/end-previous", again=_one)(partial(_end_previous, box))
    routes.post("/inlets/{inlet:str}/delete", {"name"}, again=_one)(_delete)
    return Section("Inlets", _PATH, routes)


async def _show(visit: Visit) -> ASGIApp:
    rows = visit.broker.documents.of_kind(KIND)
    inlets = await having(visit.form.text("filter"), map(inlet_of, rows), of("name"))
    listing = await listed(visit, "inlet-rows", _columns(visit.now_us), inlets, as_they_are)
    return visit.page("inlets", parts=["inlet-rows"], address=listing.address, listing=listing)


def _columns(now_us: int) -> list[Column[Inlet, Inlet]]:
    none = quiet("none since the start")

    def topic(inlet: Inlet) -> str:
        return linked(inlet.settings.topic, f"/ui/topics/{inlet.settings.topic}")

    def delivered_us(inlet: Inlet) -> int | None:
        return inlet.outcomes[-1].at_us if inlet.outcomes else None

    def delivered(inlet: Inlet) -> str:
        return ago(delivered_us(inlet), now_us) if inlet.outcomes else none

    def status(inlet: Inlet) -> int | None:
        return inlet.outcomes[-1].status if inlet.outcomes else None

    return [
        Column("name", "Name", lambda one: linked(one.name, f"{_PATH}/{one.name}"), of("name")),
        Column("topic", "Topic", topic, of("settings.topic"), "value"),
        Column(
            "scheme", "Scheme", of("settings.verify.scheme"), of("settings.verify.scheme"), "nowrap"
        ),
        Column("delivered", "Last delivery", delivered, delivered_us, "nowrap"),
        Column("status", "Status", lambda one: str(status(one) or "-"), status),
        Column(
            "description",
            "Description",
            of("settings.description"),
            of("settings.description"),
            "value",
            False,
        ),
    ]


async def _new(visit: Visit, problem: FormProblem | None = None) -> ASGIApp:
    values = dict.fromkeys(("inlet", *_FIELDS), "") | visit.form.values
    return visit.page(
        "inlet_new",
        values=values,
        fields=_DECLARED.values(),
        more=_MORE,
        path=_NEW,
        problem=problem,
        creates=_CREATES,
    )


async def _create(box: SecretBox, visit: Visit) -> ASGIApp:
    name = check_topic_name(visit.form.text("inlet"), "inlet")
    if visit.broker.documents.get(KIND, name) is not None:
        raise BadRequestError(f"There is an inlet {name} already.")
    return await _saved(visit, box, name, _wanted(visit.form))


async def _one(visit: Visit, inlet: str, problem: FormProblem | None = None) -> ASGIApp:
    found = _found(visit, inlet)
    return visit.page(
        "inlet",
        parts=["inlet-deliveries"],
        inlet=found,
        url=_url(visit, found),
        values=_values(found.settings) | (problem.values if problem else {}),
        fields=_DECLARED.values(),
        more=_MORE,
        path=f"{_PATH}/{inlet}",
        problem=problem,
    )


async def _change(box: SecretBox, visit: Visit, inlet: str) -> ASGIApp:
    _found(visit, inlet)
    return await _saved(visit, box, inlet, _wanted(visit.form))


async def _rotate(box: SecretBox, visit: Visit, inlet: str) -> ASGIApp:
    given, members = visit.form.text("secret"), _members(_found(visit, inlet).settings)
    wanted = InletWanted(**members, secrets=(given,) if given else None, keep_previous=True)
    return await _saved(visit, box, inlet, wanted)


async def _end_previous(box: SecretBox, visit: Visit, inlet: str) -> ASGIApp:
    members = _members(_found(visit, inlet).settings)
    return await _saved(visit, box, inlet, InletWanted(**members, end_previous=True))


async def _delete(visit: Visit, inlet: str) -> ASGIApp:
    found = _found(visit, inlet)
    if visit.form.text("name") != found.name:
        raise BadRequestError("This is not the name of the inlet; nothing was deleted.")
    await visit.broker.documents.remove(KIND, found.name, visit.actor)
    return visit.see_other(_PATH, f"{found.name} is deleted. Its topic stays.")


async def _saved(visit: Visit, box: SecretBox, name: str, wanted: InletWanted) -> ASGIApp:
    _, secret = await save(visit.broker, box, name, wanted, visit.actor)
    if secret is None:
        return visit.see_other(f"{_PATH}/{name}", "The changes are saved.")
    found = _found(visit, name)
    return visit.page(
        "inlet_secret", status=201, inlet=found, secret=secret, url=_url(visit, found, secret)
    )


def _url(visit: Visit, inlet: Inlet, secret: str = _HIDDEN) -> str:
    hidden = f"/{secret}" if inlet.settings.verify.scheme == "path" else ""
    return f"{visit.origin}/v1/inlets/{inlet.name}{hidden}"


def _found(visit: Visit, name: str) -> Inlet:
    """Raises NotFoundError."""
    row = visit.broker.documents.get(KIND, name)
    if row is None:
        raise NotFoundError(f"There is no inlet {name[:100]!r}.")
    return inlet_of(row)


def _members(settings: StoredInlet) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in InletSettings.__struct_fields__}


def _values(settings: StoredInlet) -> dict[str, str]:
    """As the form shows them."""
    members = {name: getattr(settings, name) for name in SETTINGS}
    members |= {name: getattr(settings.verify, name) for name in VERIFY}
    members |= {name: getattr(settings.quotas, name) for name in QUOTAS}
    return {name: "" if one is None else _DECLARED[name].text(one) for name, one in members.items()}


def _wanted(form: Form) -> InletWanted:
    """What the form asks for. Raises BadRequestError."""
    given = {name: parsed(one, form) for name, one in _DECLARED.items()}
    given = {name: value for name, value in given.items() if value is not None}
    members: dict[str, Any] = {name: given[name] for name in SETTINGS if name in given}
    for part, names in (("verify", VERIFY), ("quotas", QUOTAS)):
        if found := {name: given[name] for name in names if name in given}:
            members[part] = found
    if secret := form.text("secret"):
        members["secrets"] = [secret]
    try:
        return msgspec.convert(members, InletWanted)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{error}.") from error
