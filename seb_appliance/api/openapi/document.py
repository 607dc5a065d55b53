"""The OpenAPI 3.1 document, built from the declarations of the routes.

Tests check each answer of the HTTP tests against this document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from seb_appliance import __version__
from seb_appliance.api.encoding.problems import problem
from seb_appliance.api.openapi.parameters import Json
from seb_appliance.api.routes.route import Content, Route
from seb_appliance.errors import SebError

DESCRIPTION: Final = """\
Records go in by POST and are acknowledged once the bucket has them; they come out by GET, at \
offsets that never change.

HEAD works wherever GET does. Every answer has `Seb-Request-Id` and `Seb-Version`. Every error is \
`application/problem+json` with a stable `code`, whether the same request may succeed later \
(`retryable`), and whether anything may have happened (`side_effects`: `none` is a promise). \
Unknown query parameters and body fields are errors. Times are RFC 3339 in UTC with microseconds; \
ranges include `offset` and exclude `until`; offsets stay below 2^53."""


def document(routes: Sequence[Route]) -> Json:
    """The whole document."""
    errors = {error.code: error for route in routes for error in route.all_errors}
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    _, components = msgspec.json.schema_components(
        _structs(routes), ref_template="#/components/schemas/{name}"
    )
    for schema in components.values():
        _leave_out_empty_defaults(schema)
        if "description" in schema:
            schema["description"] = _one_line(schema["description"])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Seb Appliance",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "security": [{"bearer": []}, {"basic": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key: `Authorization: Bearer seb_…`. Never in the URL.",
                },
                "basic": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "The API key as password, any user name (`curl -u :$KEY`).",
                },
            },
            "schemas": {**components, "Problem": _problem_schema(sorted(errors))},
            "examples": {code: _problem_example(error) for code, error in sorted(errors.items())},
        },
    }


def _structs(routes: Sequence[Route]) -> list[Any]:
    contents = [
        content
        for route in routes
        for bodies in (route.body, *(reply.content for reply in route.replies.values()))
        for content in bodies.values()
    ]
    return list(dict.fromkeys(struct for content in contents for struct in content.structs))


def _leave_out_empty_defaults(schema: Json) -> None:
    """A default of null, false or nothing says no more than that the field may be left out; and
    openapi-typescript takes a field with a default for one that has to be sent."""
    for field_schema in schema.get("properties", {}).values():
        if not field_schema.get("default", True):
            del field_schema["default"]


def _operation(route: Route) -> Json:
    made: Json = {
        "operationId": route.operation_id,
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.description or route.summary,
        "responses": _responses(route),
    }
    if route.all_parameters:
        made["parameters"] = list(route.all_parameters)
    if route.body:
        made["requestBody"] = {
            "required": route.body_required,
            "content": _content(route.body),
        }
    if not route.api_key:
        made["security"] = []
    return made


def _content(content: Mapping[str, Content]) -> Json:
    return {media_type: item.documented() for media_type, item in content.items()}


def _responses(route: Route) -> Json:
    responses: Json = {}
    for status, reply in route.replies.items():
        made: Json = {"description": reply.description}
        if reply.content:
            made["content"] = _content(reply.content)
        if reply.headers:
            made["headers"] = {
                name: {"description": says, "schema": {"type": "string"}}
                for name, says in reply.headers.items()
            }
        responses[str(status)] = made
    by_status: dict[int, list[str]] = {}
    for error in route.all_errors:
        codes = by_status.setdefault(error.status, [])
        if error.code not in codes:
            codes.append(error.code)
    for status, codes in sorted(by_status.items()):
        responses[str(status)] = {
            "description": ", ".join(sorted(codes)),  # versions of Python differ in phrases
            "content": _error_content(route, sorted(codes)),
        }
    return responses


def _error_content(route: Route, codes: list[str]) -> Json:
    text = {"schema": {"type": "string"}}
    theirs = {named: text if named == "text/plain" else {} for named in route.error_media}
    # A path that cannot be is refused before its route is known.
    return theirs | _problems(codes) if "{" in route.path or not theirs else theirs


def _problems(codes: list[str]) -> Json:
    return {
        "application/problem+json": {
            "schema": {"$ref": "#/components/schemas/Problem"},
            "examples": {code: {"$ref": f"#/components/examples/{code}"} for code in codes},
        }
    }


def _problem_schema(codes: list[str]) -> Json:
    text = {"type": "string"}
    return {
        "title": "Problem",
        "type": "object",
        "description": "An error (RFC 9457). Further members carry its data.",
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": text,
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "What is wrong and what to do."},
            "code": {"type": "string", "enum": codes},
            "retryable": {"type": "boolean", "description": "The same request may succeed later."},
            "side_effects": {"enum": ["none", "unknown"]},
            "instance": {"type": "string", "description": "Names this request; it is in the log."},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"path": text, "message": text},
                    "required": ["path", "message"],
                },
            },
        },
        "required": [
            "type", "title", "status", "detail", "code", "retryable", "side_effects", "instance",
        ],
    }  # fmt: skip


def _problem_example(error: type[SebError]) -> Json:
    detail = _one_line((error.__doc__ or "").split("\n\n")[0])
    if error.__doc__ is None or error.__doc__ == SebError.__doc__:
        detail = f"{error.title}."
    return {"summary": error.title, "value": problem(error(detail), "5f1d6c0be3a2479b")}


def _one_line(docstring: str) -> str:
    """From Python 3.13 on, a docstring has lost its indentation."""
    return " ".join(docstring.split())
