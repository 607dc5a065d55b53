"""The pages of inlets: the URL to paste at the sender, the last deliveries, and every setting."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, get_args

import msgspec
from litestar.types import ASGIApp

from seb_appliance.api.server.options import SecretBox
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import BadRequestError, NotFoundError
from seb_appliance.formats.topic_settings import BODY_SHAPES
from seb_appliance.protocols.inlets.inlets import KIND, Inlet, InletWanted, StoredInlet, inlet_of
from seb_appliance.protocols.inlets.managing import save
from seb_appliance.protocols.inlets.verifying import Algorithm, Encoding, Scheme, Verify
from seb_appliance.ui.app import Section
from seb_appliance.ui.forms import Form
from seb_appliance.ui.page_context import FormProblem, Routes, Visit

_HIDDEN: Final = "…"
_PATH: Final = "/ui/inlets"
_SETTINGS: Final = (
    "topic", "body", "key", "key_header", "timestamp", "keep_headers", "delivery_header",
    "delivery", "answer", "description",
)  # fmt: skip
_VERIFY: Final = Verify.__struct_fields__
_FIELDS: Final = frozenset({*_SETTINGS, *_VERIFY, "secret"})
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "scheme": get_args(Scheme),
    "algorithm": get_args(Algorithm),
    "encoding": get_args(Encoding),
    "body": tuple(one for one in BODY_SHAPES if one != "envelope"),
    "answer": ("stored", "admitted"),
}


def section(box: SecretBox) -> Section:
    """For the navigation of the admin page."""
    routes = Routes()
    routes.get("/inlets")(_show)
    routes.get("/inlets/new")(_new)
    routes.post("/inlets/new", _FIELDS | {"inlet"}, again=_new)(partial(_create, box))
    routes.get("/inlets/{inlet:str}")(_one)
    routes.post("/inlets/{inlet:str}", _FIELDS, again=_one)(partial(_change, box))
    routes.post("/inlets/{inlet:str}/rotate", {"secret"}, again=_one)(partial(_rotate, box))
    routes.post("/inlets/{inlet:str}/delete", {"name"}, again=_one)(_delete)
    return Section("Inlets", _PATH, routes)


async def _show(visit: Visit) -> ASGIApp:
    rows = visit.broker.documents.of_kind(KIND)
    return visit.page("inlets", inlets=[inlet_of(row) for row in rows])


async def _new(visit: Visit, problem: FormProblem | None = None) -> ASGIApp:
    values = dict.fromkeys(("inlet", *_FIELDS), "") | visit.form.values
    path = f"{_PATH}/new"
    return visit.page("inlet_new", values=values, choices=_CHOICES, path=path, problem=problem)


async def _create(box: SecretBox, visit: Visit) -> ASGIApp:
    name = check_topic_name(visit.form.text("inlet"), "inlet")
    if visit.broker.documents.get(KIND, name) is not None:
        raise BadRequestError(f"There is an inlet {name} already.")
    return await _saved(visit, box, name, _wanted(visit.form, {}))


async def _one(visit: Visit, inlet: str, problem: FormProblem | None = None) -> ASGIApp:
    found = _found(visit, inlet)
    return visit.page(
        "inlet",
        inlet=found,
        url=_url(visit, found),
        values=_values(found.settings) | (problem.values if problem else {}),
        choices=_CHOICES,
        path=f"{_PATH}/{inlet}",
        problem=problem,
    )


async def _change(box: SecretBox, visit: Visit, inlet: str) -> ASGIApp:
    before = msgspec.structs.asdict(_found(visit, inlet).settings)
    return await _saved(visit, box, inlet, _wanted(visit.form, before))


async def _rotate(box: SecretBox, visit: Visit, inlet: str) -> ASGIApp:
    given, before = visit.form.text("secret"), _found(visit, inlet).settings
    members = {name: getattr(before, name) for name in before.__struct_fields__}
    members["secrets"] = [given] if given else None
    return await _saved(visit, box, inlet, InletWanted(**members, keep_previous=True))


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


def _values(settings: StoredInlet) -> dict[str, str]:
    """As the form shows them."""
    members = {name: getattr(settings, name) for name in _SETTINGS}
    members |= {name: getattr(settings.verify, name) for name in _VERIFY}
    members["keep_headers"] = ", ".join(settings.keep_headers)
    return {name: "" if one is None else str(one) for name, one in members.items()}


def _wanted(form: Form, before: dict[str, Any]) -> InletWanted:
    """What the form asks for; `before` has what no field shows. Raises BadRequestError."""
    given: dict[str, Any] = {name: form.text(name) for name in (*_SETTINGS, *_VERIFY)}
    if given["tolerance_s"].isdigit():
        given["tolerance_s"] = int(given["tolerance_s"])
    given["keep_headers"] = [one.strip() for one in given["keep_headers"].split(",") if one.strip()]
    given = {name: value for name, value in given.items() if value not in ("", [])}
    verify = {name: given.pop(name) for name in _VERIFY if name in given}
    secret = form.text("secret")
    members = {**given, "verify": verify, "secrets": [secret] if secret else None}
    if "quotas" in before:
        members["quotas"] = msgspec.to_builtins(before["quotas"])
    try:
        return msgspec.convert(members, InletWanted)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{error}.") from error
