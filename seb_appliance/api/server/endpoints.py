"""What Litestar serves: one handler for each path, which calls the function of the method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any, Protocol

from litestar import Litestar, Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.encoding.answers import Answer

Handle = Callable[[Request[Any, Any, Any]], Awaitable[ASGIApp]]
AnswerError = Callable[[Request[Any, Any, Any], Exception], Response[bytes]]
Endpoint = tuple[str, str, Handle]
"""Method, path as Litestar writes it, and what answers."""


class App(Litestar):
    """With one handler for each path. None takes a model of pydantic or attrs: where these are
    installed, importing them for their plugins would be a tenth of a start."""

    @staticmethod
    def _get_default_plugins(plugins: list[Any]) -> list[Any]:
        return plugins

    @property
    def route_handler_method_map(self) -> dict[str, Any]:
        """Where Litestar looks, for each path, for an earlier handler of it: there is none."""
        return {}


class _PathHandler(HTTPRouteHandler):
    """Litestar derives each of these from the function of each handler, which was a third of a
    start. All our functions have the same signature."""

    @property
    def parsed_fn_signature(self) -> Any:
        return _example().parsed_fn_signature

    @property
    def signature_model(self) -> Any:
        return _example().signature_model

    def create_kwargs_model(self, path_parameters: object) -> Any:  # noqa: ARG002 - Litestar's name
        return _kwargs_model()


@cache
def _example() -> HTTPRouteHandler:
    async def handle(request: Request[Any, Any, Any]) -> ASGIApp:
        raise NotImplementedError

    return HTTPRouteHandler("/", http_method="GET")(handle)


@cache
def _kwargs_model() -> Any:
    return _example().create_kwargs_model(path_parameters={})


def path_handlers(
    endpoints: Iterable[Endpoint], answer_error: AnswerError | None = None
) -> list[HTTPRouteHandler]:
    """One handler for each path. `answer_error` answers what its functions raise."""
    by_path: dict[str, dict[str, Handle]] = {}
    for method, path, handle in endpoints:
        methods = by_path.setdefault(path, {})
        assert method not in methods, (method, path)
        methods[method] = handle
    return [_path_handler(path, methods, answer_error) for path, methods in by_path.items()]


def _path_handler(
    path: str, methods: dict[str, Handle], answer_error: AnswerError | None
) -> HTTPRouteHandler:
    allowed = {*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}
    allow = ", ".join(sorted(allowed)).encode()

    async def options(_request: Request[Any, Any, Any]) -> ASGIApp:
        return Answer(204, [(b"allow", allow)])

    methods = {"OPTIONS": options, **methods}

    async def handle(request: Request[Any, Any, Any]) -> ASGIApp:
        return await methods[request.scope["method"]](request)

    return _PathHandler(
        path,
        http_method=list(methods),  # type: ignore[arg-type]
        status_code=200,
        exception_handlers=None if answer_error is None else {Exception: answer_error},
    )(handle)


class Site(Protocol):
    """Pages for people. `path` is that of all of them, except the way in from `/`."""

    @property
    def path(self) -> str: ...
    @property
    def endpoints(self) -> list[Endpoint]: ...
    @property
    def answer_error(self) -> AnswerError: ...
