"""What schemathesis is told of our API beside the OpenAPI document (`SCHEMATHESIS_HOOKS`).

It learns ids from answers: without the first hook it would soon revoke the API key that it uses.
Half of the requests go to topics and groups that are there, or they would all be answered 404.
"""

from __future__ import annotations

import os
from typing import Any, Final

import schemathesis

OURS: Final = os.environ["SEB_TEST_API_KEY_ID"]
THERE: Final = {"topic": "there", "topic-name": "there", "group": "readers"}


@schemathesis.hook
def filter_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> bool:
    return not path_parameters or path_parameters.get("api_key_id") != OURS


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any]) -> dict[str, Any]:
    return _partly_there(path_parameters)


@schemathesis.hook
def filter_query(context: Any, query: dict[str, Any] | None) -> bool:
    """A live answer has no end."""
    return not query or "sse" not in f"{query.get('format')} {query.get('live')}"


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any]) -> dict[str, Any]:
    return _partly_there(query)


def _partly_there(parameters: dict[str, Any]) -> dict[str, Any]:
    if not parameters or len(str(parameters)) % 2:
        return parameters
    return {name: THERE.get(name, value) for name, value in parameters.items()}
