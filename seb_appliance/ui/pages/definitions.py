"""The file of definitions: downloaded, compared with this appliance, and applied."""

from __future__ import annotations

from litestar.types import ASGIApp

from seb_appliance.errors import BadRequestError, NotFoundError
from seb_appliance.quantities import counted
from seb_appliance.ui.answers import file
from seb_appliance.ui.options import Definitions, PlanShown
from seb_appliance.ui.page_context import FormProblem, Routes, Visit

routes = Routes()
_PATH = "/ui/definitions"


async def _page(
    visit: Visit, problem: FormProblem | None = None, plan: PlanShown | None = None
) -> ASGIApp:
    text = visit.form.raw("text")
    if problem and text and plan is None:
        plan = await _plan_again(visit, text)
    return visit.page("definitions", text=text, plan=plan, problem=problem)


async def _plan_again(visit: Visit, text: str) -> PlanShown | None:
    """Of a form that was refused; None if it is the file that is wrong."""
    try:
        return await _definitions(visit).plan(visit.actor, text)
    except BadRequestError:
        return None


@routes.get("/definitions")
async def show(visit: Visit) -> ASGIApp:
    return await _page(visit)


@routes.get("/definitions/file")
async def download(visit: Visit) -> ASGIApp:
    return file("seb.yaml", "application/yaml", await _definitions(visit).export(visit.actor))


@routes.post("/definitions", {"text", "step", "stood"}, again=_page)
async def apply(visit: Visit) -> ASGIApp:
    definitions, text = _definitions(visit), visit.form.raw("text").replace("\r\n", "\n")
    if not text.strip():
        raise BadRequestError("Paste a file of definitions.")
    if visit.form.text("step") != "apply":
        return await _page(visit, plan=await definitions.plan(visit.actor, text))
    applied = await definitions.apply(visit.actor, text, visit.form.text("stood"))
    if applied.secrets or (applied.failure and applied.done):
        return visit.page("definitions_applied", status=201, applied=applied)
    if applied.failure:
        raise BadRequestError(applied.failure)
    return visit.see_other(_PATH, f"{counted(applied.done, 'change')} made.")


def _definitions(visit: Visit) -> Definitions:
    if visit.options.definitions is None:
        raise NotFoundError("This appliance has no definitions.")
    return visit.options.definitions
