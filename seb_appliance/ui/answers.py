"""What the pages answer: a page, a way to another one, or a file that pages load."""

from __future__ import annotations

import re
from typing import Final

from litestar.types import Receive, Scope, Send

Headers = list[tuple[bytes, bytes]]

# No inline script or style, nothing from elsewhere, in nobody's frame.
POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", POLICY),
    # Not no-referrer: browsers then say "Origin: null" in our own forms (page_context.py).
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
    return Sent(status, [*_PAGE_HEADERS, *(headers or [])], text.encode())


def see_other(path: str, headers: Headers | None = None) -> Sent:
    """To another page of ours, by GET."""
    return Sent(303, [*_PAGE_HEADERS, (b"location", path.encode()), *(headers or [])])


def local_path(given: str) -> str:
    """`given` if it is a path of the admin page, else its start: nobody is sent elsewhere."""
    return given if _LOCAL_PATH.fullmatch(given) else START
