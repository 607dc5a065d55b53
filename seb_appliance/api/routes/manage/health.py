"""`/healthz` (the process lives) and `/readyz` (it takes reads and writes): no API key needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from seb_appliance.api.encoding.answers import Answer
from seb_appliance.api.encoding.parameters import choice, read_headers, read_query
from seb_appliance.api.openapi.parameters import query
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    route,
)
from seb_appliance.api.server.auth import enter, is_local
from seb_appliance.broker.counters import BOUNDS_S, Histogram
from seb_appliance.errors import (
    BadParameterError,
    ForbiddenError,
    NotReadyError,
    QuotaExceededError,
    UnauthenticatedError,
)
from seb_appliance.tasks import in_slices

# `/metrics` in the Prometheus text format; for this machine only unless set otherwise.
_QUERY: Final = frozenset({"names"})
_NAMES: Final = frozenset({"topic", "group"})  # labels that are only shown to who asks for them
CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric. Samples of one name agree on `help` and `kind`. A histogram's have a
    `suffix` each, and come from `histogram`."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""


def histogram(
    name: str, text: str, found: Histogram, labels: Mapping[str, str] | None = None
) -> Iterator[Sample]:
    """The samples of a histogram: how many were no longer than each bound, their sum and count."""
    given, count = dict(labels or {}), 0
    for bound, more in zip((*BOUNDS_S, None), found.counts, strict=True):
        count += more
        edge = {"le": "+Inf" if bound is None else f"{bound:g}"}
        yield Sample(name, text, "histogram", count, {**given, **edge}, "_bucket")
    yield Sample(name, text, "histogram", found.sum_s, given, "_sum")
    yield Sample(name, text, "histogram", count, given, "_count")


def exposition(samples: Iterable[Sample]) -> bytes:
    """The text of the samples, those of one name together, in the order of first appearance."""
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        families.setdefault(sample.name, []).append(sample)
    lines: list[str] = []
    for name, family in families.items():
        lines.append(f"# HELP {name} {_escape(family[0].help)}")
        lines.append(f"# TYPE {name} {family[0].kind}")
        for sample in family:
            labels = ",".join(
                f'{label}="{_escape(text, quotes=True)}"' for label, text in sample.labels.items()
            )
            shown = f"{name}{sample.suffix}"
            shown += f"{{{labels}}}" if labels else ""
            lines.append(f"{shown} {sample.value}")
    return "\n".join([*lines, ""]).encode()


def _escape(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


@route(
    "GET",
    "/healthz",
    "healthz",
    tag="System",
    summary="Whether the process lives",
    replies={200: Reply(description="It does", content={"application/json": Content(schema={})})},
    api_key=False,
)
async def healthz(_ctx: RequestContext) -> object:
    return {"status": "ok"}


@route(
    "GET",
    "/readyz",
    "readyz",
    tag="System",
    summary="Show whether reads and writes are accepted",
    description="A request from this machine gets the problems in the answer.",
    replies={200: Reply(description="They are", content={"application/json": Content(schema={})})},
    errors=(NotReadyError,),
    api_key=False,
)
async def readyz(ctx: RequestContext) -> object:
    readiness = await ctx.broker.readiness()
    if readiness.ready:
        return {"ready": True}

    # The sentences name buckets and files: they are for this machine's operator.
    if is_local(ctx.request.scope):
        raise NotReadyError("; ".join(readiness.sentences), problems=readiness.sentences)
    raise NotReadyError("The appliance cannot accept reads and writes now.")


@route(
    "GET",
    "/metrics",
    "metrics",
    tag="System",
    summary="Metrics in the Prometheus text format",
    description="Without an API key, only requests from the same machine (to a loopback "
    "address) are answered, unless `metrics_public` is set. With an API key that has the grant "
    "`admin`, requests from everywhere are answered.",
    parameters=[
        query(
            "names",
            "Also the metrics with names of topics and groups as labels.",
            type="boolean",
            default=False,
        )
    ],
    replies={
        200: Reply(
            description="Metrics", content={"text/plain": Content(schema={"type": "string"})}
        )
    },
    errors=(BadParameterError, ForbiddenError, QuotaExceededError, UnauthenticatedError),
    api_key=False,
)
async def metrics(ctx: RequestContext) -> object:
    if not (ctx.options.metrics_public or is_local(ctx.request.scope)):
        headers = read_headers(list(ctx.request.scope["headers"]))
        if b"authorization" not in headers:
            raise ForbiddenError(
                "Without an API key, /metrics answers only requests from the same machine (to a "
                "loopback address). Send an admin key, or set metrics_public."
            )
        ctx.broker.authorize(enter(ctx.request, ctx.broker, _QUERY).key, "admin")
    asked = read_query(ctx.request.scope["query_string"], _QUERY).get("names", "false")
    hidden = _NAMES if choice(asked, "names", ("false", "true")) == "false" else frozenset()
    every = in_slices(await ctx.services.samples())
    shown = [sample async for sample in every if not hidden & sample.labels.keys()]
    return Answer(200, [(b"content-type", CONTENT_TYPE)], exposition(shown))


ROUTES: Final = [healthz, readyz, metrics]
