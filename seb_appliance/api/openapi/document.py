"""The OpenAPI 3.1 document, built from the operations that the files beside this one describe.

Written down by hand beside the handlers, because they read bytes that no annotation can describe;
a test compares both lists of routes, and the HTTP tests check each answer against this document.
"""

from __future__ import annotations

import http
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from seb_appliance import __version__
from seb_appliance.api.encoding.problems import problem
from seb_appliance.errors import (
    ApiKeyChangedError,
    BadParameterError,
    BadRequestError,
    ForbiddenError,
    HeadersTooLargeError,
    InternalError,
    MethodNotAllowedError,
    OverloadedError,
    QuotaExceededError,
    RequestTimeoutError,
    SebError,
    ShareExceededError,
    TopicHeldError,
    TopicNotFoundError,
    TransferCodingError,
    UnauthenticatedError,
)

Json = dict[str, Any]
ErrorTypes = tuple[type[SebError], ...]

_TEXT: Final[Json] = {"text/plain": {"schema": {"type": "string"}}}

# What any request can be answered with, whatever its route.
EVERYWHERE: Final[ErrorTypes] = (
    BadRequestError,
    MethodNotAllowedError,
    RequestTimeoutError,
    HeadersTooLargeError,
    InternalError,
    OverloadedError,
    TransferCodingError,
)
WITH_API_KEY: Final[ErrorTypes] = (
    ApiKeyChangedError,
    BadParameterError,
    TopicHeldError,
    TopicNotFoundError,
    UnauthenticatedError,
    ForbiddenError,
    QuotaExceededError,
    ShareExceededError,
)

DESCRIPTION: Final = """\
Records go in by POST and are acknowledged once the bucket has them; they come out by GET, at \
offsets that never change.

HEAD works wherever GET does. Every answer has `Seb-Request-Id` and `Seb-Version`. Every error is \
`application/problem+json` with a stable `code`, whether the same request may succeed later \
(`retryable`), and whether anything may have happened (`side_effects`: `none` is a promise). \
Unknown query parameters and body fields are errors. Times are RFC 3339 in UTC with microseconds; \
ranges include `offset` and exclude `until`; offsets stay below 2^53."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """One media type of a body: a JSON schema and an example."""

    schema: Json
    example: Any = None


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A success. `headers`: name → what it says."""

    description: str
    content: Mapping[str, Content] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path. `parameters` are OpenAPI parameter objects."""

    method: str
    path: str
    operation_id: str
    tag: str
    summary: str
    description: str = ""
    parameters: Sequence[Json] = ()
    body: Mapping[str, Content] = field(default_factory=dict)
    body_required: bool = True
    replies: Mapping[int, Reply]
    errors: ErrorTypes = ()
    api_key: bool = True
    text_errors: bool = False  # not problem documents: routes that speak as another broker does

    @property
    def all_errors(self) -> ErrorTypes:
        """Every error that this operation can answer with."""
        held = (TopicHeldError,) if TopicNotFoundError in self.errors else ()
        return (*(WITH_API_KEY if self.api_key else ()), *EVERYWHERE, *self.errors, *held)


def ref(schema: type) -> Json:
    return {"$ref": f"#/components/schemas/{schema.__name__}"}


def document(operations: Iterable[Operation], schemas: Sequence[type]) -> Json:
    """The whole document; `schemas` are the structs that `ref` names."""
    listed = list(operations)
    errors = {error.code: error for operation in listed for error in operation.all_errors}
    paths: dict[str, Json] = {}
    for operation in listed:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    _, components = msgspec.json.schema_components(
        schemas, ref_template="#/components/schemas/{name}"
    )
    for schema in components.values():
        _leave_out_empty_defaults(schema)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Seb Appliance",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(op.tag for op in listed)],
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


def _leave_out_empty_defaults(schema: Json) -> None:
    """A default of null, false or nothing says no more than that the field may be left out; and
    openapi-typescript takes a field with a default for one that has to be sent."""
    for field_schema in schema.get("properties", {}).values():
        if not field_schema.get("default", True):
            del field_schema["default"]


def _operation(operation: Operation) -> Json:
    made: Json = {
        "operationId": operation.operation_id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description or operation.summary,
        "responses": _responses(operation),
    }
    if operation.parameters:
        made["parameters"] = list(operation.parameters)
    if operation.body:
        made["requestBody"] = {
            "required": operation.body_required,
            "content": _content(operation.body),
        }
    if not operation.api_key:
        made["security"] = []
    return made


def _content(content: Mapping[str, Content]) -> Json:
    return {
        media_type: {
            "schema": item.schema,
            **({} if item.example is None else {"example": item.example}),
        }
        for media_type, item in content.items()
    }


def _responses(operation: Operation) -> Json:
    responses: Json = {}
    for status, reply in operation.replies.items():
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
    for error in operation.all_errors:
        codes = by_status.setdefault(error.status, [])
        if error.code not in codes:
            codes.append(error.code)
    for status, codes in sorted(by_status.items()):
        responses[str(status)] = {
            "description": f"{http.HTTPStatus(status).phrase}: {', '.join(sorted(codes))}",
            "content": _TEXT if operation.text_errors else _problems(sorted(codes)),
        }
    return responses


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
    detail = (error.__doc__ or "").split("\n\n")[0].replace("\n    ", " ")
    if error.__doc__ is None or error.__doc__ == SebError.__doc__:
        detail = f"{error.title}."
    return {"summary": error.title, "value": problem(error(detail), "5f1d6c0be3a2479b")}
