"""docs/HTTP_API.md names only routes, error codes and topic settings that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

from seb_appliance.ops.serve.protocols import openapi_json

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "HTTP_API.md").read_text(encoding="utf-8")
PATHS = json.loads(openapi_json())["paths"]
METHODS = r"(?:GET|PUT|POST|PATCH|DELETE|HEAD)"


def test_every_route_that_the_page_names_exists() -> None:
    named = re.findall(rf"`({METHODS}(?:`, `{METHODS})*) (/[\w/{{}}.-]*)", PAGE)
    assert len(named) > 30
    for methods, path in named:
        for method in re.findall(METHODS, methods):
            assert method.lower() in PATHS[path], f"{method} {path}"


def test_every_error_code_that_the_page_names_exists() -> None:
    errors = (DOCS / "ERRORS.md").read_text(encoding="utf-8")
    codes = set(re.findall(r"^\| `(\w+)` \| \d{3} \|", errors, re.MULTILINE))
    named = set(re.findall(r"\b[45]\d\d\)? `(\w+)`", PAGE)) | set(
        re.findall(r'"code":"(\w+)"', PAGE)
    )
    assert len(named) > 10
    assert named <= codes, named - codes


def test_the_page_names_every_parameter_of_a_plain_read() -> None:
    read = PATHS["/v1/topics/{topic}/records"]["get"]["parameters"]
    for parameter in read:
        if parameter["in"] == "query" and parameter["name"] != "key_base64":
            assert f"{parameter['name']}`" in PAGE or f"{parameter['name']}=" in PAGE, parameter
