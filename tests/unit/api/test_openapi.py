"""The OpenAPI document: it lists every route, every error, and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from seb_appliance import errors
from seb_appliance.api.routes.manage.topics import TopicChanges
from seb_appliance.api.server.app import all_routes, create_app
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ops.host.secret_box import FernetBox
from seb_appliance.ops.serve.protocols import PROTOCOLS, openapi_json

OPERATIONS = all_routes(PROTOCOLS)
DOCUMENT = msgspec.json.decode(openapi_json())


def all_errors(kind: type[errors.SebError]) -> set[type[errors.SebError]]:
    return {kind} | {found for below in kind.__subclasses__() for found in all_errors(below)}


def test_every_route_is_listed_and_every_listed_route_is_there():
    options = ApiOptions(pages=Path(), static=Path(), secret_box=FernetBox(Path()))
    none = lambda: None  # noqa: E731
    api = create_app(  # type: ignore[arg-type]
        object(),
        options=options,
        status=none,
        costs=none,
        snapshot=none,
        samples=none,
        protocols=PROTOCOLS,
    )
    served = {
        (method, re.sub(r":(str|path)\}", "}", route.path))
        for route in api.litestar.routes
        for method in route.methods
    }
    listed = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}
    assert listed <= served
    assert {method for method, _ in served - listed} == {"OPTIONS"}  # Litestar's own


def sentences() -> Iterator[str]:
    """The texts of the package, with {} for what is put into them."""
    for path in Path(errors.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_every_route_that_a_sentence_names_is_there():
    listed = {
        (method.upper(), re.sub(r"\{[^}]*\}", "{}", path))
        for path, item in DOCUMENT["paths"].items()
        for method in item
    }
    route = re.compile(r"\b(GET|HEAD|PUT|POST|PATCH|DELETE) (/v1/[\w{}/-]+)")
    named = {
        (method, re.sub(r"\{[^}]*\}", "{}", path))
        for text in sentences()
        for method, path in route.findall(text)
        if not path.endswith("/")  # a beginning
    }
    assert len(named) > 3
    assert named <= listed, named - listed


def test_every_code_that_can_reach_a_client_is_documented():
    # Store errors become "retry" or 503 inside, start errors and those of old buckets are for the
    # terminal, and the admin page has some of its own.
    inside = all_errors(errors.StoreError) | all_errors(errors.StartError)
    inside |= {errors.ImportRefusedError, errors.ExportRefusedError}
    reaching = all_errors(errors.SebError) - inside
    codes = {error.code for error in reaching if error.__module__ == errors.__name__}
    documented = {error.code for operation in OPERATIONS for error in operation.all_errors}
    assert codes == documented
    assert set(DOCUMENT["components"]["examples"]) == documented


def test_the_document_is_valid_openapi_3_1():
    assert DOCUMENT["openapi"].startswith("3.1.")
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_operation_ids_are_unique_and_stay_what_they_are():
    ids = [operation.operation_id for operation in OPERATIONS]
    assert sorted(ids) == sorted(set(ids))
    # Clients are generated from these names: adding is fine, renaming breaks somebody.
    assert set(ids) >= {
        "produce", "consume", "getRecord", "listTopics", "createTopic", "getTopic", "changeTopic",
        "deleteTopic", "listApiKeys", "createApiKey", "getApiKey", "revokeApiKey",
        "consumeInGroup", "commitOffsets", "listGroups", "getGroup", "deleteGroup", "resetGroup",
        "takeLease", "releaseLease", "getStatus", "transact",
    }  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.operation_id)
def test_json_bodies_have_examples(operation):
    for content in [operation.body, *(reply.content for reply in operation.replies.values())]:
        found = content.get("application/json")
        assert found is None or found.example is not None or found.schema == {}


def test_examples_fit_their_structs():
    for operation in OPERATIONS:
        assert operation.summary
        assert operation.path.startswith("/")
        for content in operation.body.values():
            name = content.schema.get("$ref", "").rpartition("/")[2]
            if name:
                schema = DOCUMENT["components"]["schemas"][name]
                assert set(content.example) <= set(schema["properties"])
                assert set(schema.get("required", ())) <= set(content.example)


def test_examples_are_what_their_schemas_say():
    operations = [one for item in DOCUMENT["paths"].values() for one in item.values()]
    examples = [
        (one["operationId"], content["schema"], content["example"])
        for one in operations
        for body in (one.get("requestBody", {}), *one["responses"].values())
        for content in body.get("content", {}).values()
        if "example" in content
    ]
    examples += [
        (op.operation_id, p["schema"], p["example"])
        for op in OPERATIONS
        for p in op.all_parameters
        if p.get("example") is not None
    ]
    for name, schema, example in examples:
        beside = {**DOCUMENT, **schema}  # what it refers to stands beside it
        found = list(Draft202012Validator(beside).iter_errors(example))
        assert not found, (name, found[0].message)


def test_every_array_says_what_its_items_are():
    """Linters ask for it, and generators of clients."""

    def arrays(node: object) -> Iterator[dict[str, object]]:
        if isinstance(node, dict):
            if node.get("type") == "array":
                yield node
            node = list(node.values())
        for child in node if isinstance(node, list) else ():
            yield from arrays(child)

    assert [one for one in arrays(DOCUMENT) if not {"items", "prefixItems"} & set(one)] == []


def test_every_topic_setting_can_be_changed():
    assert TopicChanges.__struct_fields__ == TopicSettings.__struct_fields__
