"""Is what the appliance answers what the OpenAPI document says?"""

from __future__ import annotations

import re
from typing import Any

import httpx2
import msgspec

from seb_appliance.ops.serve.protocols import openapi_json

DOCUMENT = msgspec.json.decode(openapi_json())
_PATHS = [(re.compile(re.sub(r"\{[a-z_]+\}", "[^/]+", path)), path) for path in DOCUMENT["paths"]]
PROBLEM = "application/problem+json"
PROBLEM_MEMBERS = set(DOCUMENT["components"]["schemas"]["Problem"]["required"])


async def check_documented(response: httpx2.Response) -> None:
    """An event hook for a client: fails at the first answer that the document does not know."""
    await response.aread()
    request = response.request
    path = next((p for pattern, p in _PATHS if pattern.fullmatch(request.url.path)), None)
    check_headers(response)
    method = "get" if request.method == "HEAD" else request.method.lower()
    item = {} if path is None or response.status_code == 405 else DOCUMENT["paths"][path]
    replies = item.get(method, {}).get("responses")
    if response.status_code >= 400:
        check_problem(response, _media_of_errors(replies or {}))
    if replies is None:
        return
    where = f"{request.method} {path} → {response.status_code}"
    assert str(response.status_code) in replies, f"{where} is not documented"
    content = replies[str(response.status_code)].get("content", {})
    named = response.headers.get("content-type", "").split(";")[0]
    check_last_line(response, path or "", theirs=_media_of_errors(replies) != [PROBLEM])
    known = named in content or "*/*" in content or not content
    assert known, f"{where} {named} is not documented"
    if named == PROBLEM and request.method != "HEAD":
        code = response.json()["code"]
        assert code in content[named]["examples"], f"{where} {code} is not documented"


def _media_of_errors(replies: dict[str, Any]) -> list[str]:
    """Problem documents, or what another protocol answers."""
    return list(replies.get("400", {}).get("content", {})) or [PROBLEM]


def check_headers(response: httpx2.Response) -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", response.headers["seb-request-id"])
    assert response.headers["seb-version"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "content-security-policy" in response.headers
    assert "cache-control" in response.headers


def check_last_line(response: httpx2.Response, path: str, *, theirs: bool) -> None:
    """A shell's prompt stands on a line of its own, but where another protocol says every byte."""
    named = response.headers.get("content-type", "").split(";")[0]
    theirs = theirs or (path.startswith("/v1/stream/") and response.status_code < 400)
    if response.content and named.endswith("json") and not theirs:
        assert response.content.endswith(b"\n"), response.url
        assert not response.content.endswith(b"\n\n"), response.url


def check_problem(response: httpx2.Response, media: list[str]) -> None:
    assert response.headers["content-type"].split(";")[0] in media
    if response.request.method == "HEAD":
        return
    if media != [PROBLEM]:
        assert response.content
    else:
        check_members(response)
    if response.status_code == 401:
        assert response.headers["www-authenticate"].startswith("Bearer")
    if response.status_code == 413:
        assert response.headers["connection"] == "close"
    if response.status_code in (429, 503):
        assert int(response.headers["retry-after"]) >= 1


def check_members(response: httpx2.Response) -> None:
    problem = response.json()
    assert problem.keys() >= PROBLEM_MEMBERS
    assert problem["status"] == response.status_code
    assert problem["type"] == f"urn:seb:error:{problem['code']}"
    assert problem["instance"] == f"urn:seb:request:{response.headers['seb-request-id']}"
    assert problem["detail"]
