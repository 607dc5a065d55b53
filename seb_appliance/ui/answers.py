"""What the pages answer: a rendered template, a redirect, or a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar.types import Receive, Scope, Send

from seb_appliance import __version__
from seb_appliance.ui.units import FILTERS

Headers = list[tuple[bytes, bytes]]

# No inline script or style, nothing from other origins, no frames.
POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    b"connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; "
    b"frame-ancestors 'none'"
)
_PAGE_HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", POLICY),
    # Not no-referrer: with it, browsers send "Origin: null" in our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"vary", b"hx-request, hx-target"),
)
_LOCAL_PATH: Final = re.compile(
    r"/ui(?:/(?!\.\.?(?:[/?]|$))[A-Za-z0-9_.~-]+)*(?:\?[A-Za-z0-9_.~%&=*+:@-]*)?"
)
START: Final = "/ui"


class Sent:
    """An ASGI application that sends one answer."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body

    async def __call__(
        self,
        scope: Scope,  # noqa: ARG002 - the shape of an ASGI application
        receive: Receive,  # noqa: ARG002
        send: Send,
    ) -> None:
        headers = [*self.headers, (b"content-length", str(len(self.body)).encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})


def html(status: int, text: str, headers: Headers | None = None) -> Sent:
    later = [(b"retry-after", b"6")] if status in (429, 503) else []
    return Sent(status, [*_PAGE_HEADERS, *later, *(headers or [])], text.encode())


def json(value: msgspec.Struct) -> Sent:
    """For scripts of ours."""
    others = [one for one in _PAGE_HEADERS if one[0] != b"content-type"]
    headers = [(b"content-type", b"application/json"), *others]
    return Sent(200, headers, msgspec.json.encode(value))


def csv_file(name: str, text: str) -> Sent:
    """A table to save."""
    return file(name, "text/csv", text)


def file(name: str, content_type: str, text: str) -> Sent:
    """A file to save."""
    kind = (b"content-type", f"{content_type}; charset=utf-8".encode())
    named = (b"content-disposition", f'attachment; filename="{name}"'.encode())
    others = [one for one in _PAGE_HEADERS if one[0] != b"content-type"]
    return Sent(200, [*others, kind, named], text.encode())


def see_other(path: str, headers: Headers | None = None) -> Sent:
    """A redirect to another page."""
    return Sent(303, [*_PAGE_HEADERS, (b"location", path.encode()), *(headers or [])])


def local_path(given: str) -> str:
    """`given` if it is a path of the admin page, else its start page."""
    return given if _LOCAL_PATH.fullmatch(given) else START


# The navigation: title, path.
NAVIGATION: Final = (
    ("Overview", "/ui"),
    ("Topics", "/ui/topics"),
    ("Groups", "/ui/groups"),
    ("Queues", "/ui/queues"),
    ("Tables", "/ui/tables"),
    ("API keys", "/ui/api-keys"),
    ("Storage", "/ui/storage"),
    ("Users", "/ui/users"),
    ("Settings", "/ui/settings"),
    ("Audit", "/ui/audit"),
)
_OF_DATA: Final = 6  # the first ones are about data, the others about the appliance


def _navigation(sections: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """With those of protocols, which are about data, before the pages about the appliance."""
    of_data = NAVIGATION[:_OF_DATA]
    return [*of_data, *sections, *NAVIGATION[_OF_DATA:]]


class Renderer:
    """Everything is escaped, and a missing name is an error. `asset`: the path of a static file;
    `form_id` makes an id for a form, see SentForms; `sections`: title and path of more pages."""

    def __init__(
        self,
        templates: Path,
        asset: Callable[[str], str],
        form_id: Callable[[], str],
        sections: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(templates),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(FILTERS)
        self.navigation = _navigation(sections)
        self._environment.globals.update(
            asset=asset, form_id=form_id, navigation=self.navigation, version=__version__
        )

    def render(self, template: str, **members: Any) -> str:
        return self._environment.get_template(template).render(**members)
