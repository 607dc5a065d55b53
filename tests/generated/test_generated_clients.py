"""What other people's generators make of our OpenAPI document works against a real process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.serving import Serving, serving
from tests.streams.node import node
from tests.support.process import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]

FOLDER = Path(__file__).parent
MADE = ROOT / ".state/generators"
MODULES = MADE / "npm/node_modules"
PYTHON = MADE / "python/bin"


@pytest.fixture(scope="module")
def seb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("seb")) as running:
        yield running


@pytest.fixture
def document(seb: Serving, tmp_path: Path) -> Path:
    status, body = seb.request("GET", "/schema/openapi.json")
    assert status == 200
    path = tmp_path / "openapi.json"
    path.write_bytes(body)
    return path


def installed(program: Path) -> str:
    """Skips where it is not."""
    if not program.exists():
        pytest.skip(f"no {program.name} here: sh .ci/install-generators")
    return str(program)


def run(*command: str, seb: Serving, folder: Path) -> str:
    """What it says; it has to succeed."""
    key = (seb.data / "admin.key").read_text().strip()
    given = {"SEB_URL": f"http://127.0.0.1:{seb.port}", "SEB_API_KEY": key, "NO_COLOR": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": f"{PYTHON}:{os.environ['PATH']}", "PYTHONPATH": "", **given},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_spectral_finds_no_error_in_the_document(seb: Serving, document: Path):
    spectral = installed(MODULES / "@stoplight/spectral-cli/dist/index.js")
    rules = document.with_name("rules.yaml")
    rules.write_text('extends: ["spectral:oas"]\n')
    flags = ["--ruleset", str(rules), "--format", "json", "--quiet", "--fail-severity", "error"]
    said = run(node(), spectral, "lint", *flags, str(document), seb=seb, folder=document.parent)
    assert [found for found in json.loads(said or "[]") if found["severity"] == 0] == []


def test_the_client_of_openapi_python_client_produces_consumes_and_commits(
    seb: Serving, document: Path
):
    generator = installed(PYTHON / "openapi-python-client")
    folder = document.parent
    known = json.loads(document.read_bytes())
    for one in (one for path in known["paths"].values() for one in path.values()):
        # It would make a function that has two arguments `body`.
        one["parameters"] = [p for p in one.get("parameters", ()) if p.get("name") != "body"]
    document.write_text(json.dumps(known))
    made = ["--output-path", "seb_client", "--meta", "none"]
    run(generator, "generate", "--path", str(document), *made, seb=seb, folder=folder)
    shutil.copy(FOLDER / "python_client.py", folder)
    said = run(str(PYTHON / "python"), "python_client.py", seb=seb, folder=folder)
    assert said == "done\n"


def test_the_client_of_openapi_typescript_produces_consumes_and_commits(
    seb: Serving, document: Path
):
    generator = installed(MODULES / "openapi-typescript/bin/cli.js")
    folder = document.parent
    (folder / "node_modules").symlink_to(MODULES)
    shutil.copy(FOLDER / "client.ts", folder)
    (folder / "package.json").write_text('{"type": "module"}')
    run(node(), generator, "openapi.json", "-o", "schema.d.ts", seb=seb, folder=folder)
    flags = ["--strict", "--target", "es2022", "--module", "es2022", "--lib", "es2022,dom"]
    flags += ["--moduleResolution", "bundler", "--skipLibCheck"]
    compiler = str(MODULES / "typescript/bin/tsc")
    run(node(), compiler, *flags, "client.ts", seb=seb, folder=folder)
    assert run(node(), "client.js", seb=seb, folder=folder) == "done\n"
