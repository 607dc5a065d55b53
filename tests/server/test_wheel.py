"""The built wheel is a whole appliance where there is no checkout, and its base is light."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.server.serving import ENVIRONMENT, serving

ROOT = Path(__file__).parents[2]

# The Makefile names the pins relative to the checkout; here they are named in full.
OUTSIDE = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("PIP_")}

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    finished = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300, env=OUTSIDE
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel (made from the unpacked sdist, as pip would) and the sdist."""
    folder = tmp_path_factory.mktemp("built")
    hatchling: Sequence[str] = (sys.executable, "-m", "hatchling", "build", "-d", str(folder))
    run(*hatchling, "-t", "sdist", cwd=ROOT)
    sdist = next(folder.glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    run(*hatchling, "-t", "wheel", cwd=folder / sdist.name.removesuffix(".tar.gz"))
    return next(folder.glob("*.whl")), sdist


def pip(folder: Path, *arguments: str | Path) -> str:
    """Our pip, for the virtual environment `folder`: to install one there takes as long as the
    rest."""
    command = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", *arguments]
    return run(*command, cwd=folder)


def environment(folder: Path, requirement: str) -> Path:
    """A fresh virtual environment's `bin` with `requirement` installed."""
    venv.create(folder)
    quietly = ("--quiet", "--no-compile", "--no-warn-script-location")
    pip(folder, "install", *quietly, "--constraint", ROOT / "constraints.txt", requirement)
    return folder / "bin"


def test_wheel_and_sdist_carry_migrations_and_templates(built: tuple[Path, Path]) -> None:
    wheel, sdist = built
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "seb_appliance/_bundled/migrations/env.py" in names
    assert any(name.startswith("seb_appliance/_bundled/templates/pages/") for name in names)
    assert "seb_appliance/py.typed" in names
    assert not [name for name in names if name.startswith("tests/")]
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert inside >= {"migrations/env.py", "templates/pages/schema.html", "LICENSE", "Makefile"}


def test_the_spark_connector_is_in_the_wheel_and_a_wheel_alone(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    names = set(zipfile.ZipFile(built[0]).namelist())
    assert {"pyspark_seb/__init__.py", "pyspark_seb/writing/batch.py"} <= names
    run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        tmp_path,
        cwd=ROOT / "spark",
    )
    alone = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    assert {"pyspark_seb/__init__.py", "seb_appliance/formats/batch.py"} <= alone
    assert not [name for name in alone if name.startswith(("seb_appliance/api", "jobs"))]


def test_the_wheel_serves_outside_the_checkout(built: tuple[Path, Path], tmp_path: Path) -> None:
    bin_folder = environment(tmp_path / "venv", f"{built[0]}[server]")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with serving(tmp_path, seb=[str(bin_folder / "seb")], cwd=elsewhere) as running:
        records = "/v1/topics/greetings/records"
        assert running.request("POST", records, b"hello")[0] == 201
        status, body = running.request("GET", f"{records}?format=json")
        assert status == 200
        assert b'"value":"hello"' in body
        status, page = running.request("GET", "/schema")
        assert status == 200
        assert b"<html" in page.lower()
        assert running.stop() == 0
    site = run(
        bin_folder / "python", "-c", "import seb_appliance as s; print(s.__file__)", cwd=elsewhere
    )
    assert str(tmp_path / "venv") in site


def test_the_base_install_reads_formats_and_tells_what_the_server_needs(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    bin_folder = environment(tmp_path / "venv", str(built[0]))
    installed = pip(tmp_path / "venv", "freeze").lower()
    assert "msgspec" in installed
    assert "litestar" not in installed
    assert "boto3" not in installed
    fixture = ROOT / "tests" / "fixtures" / "seb-v1" / "s3" / "000000000000.record_batch"
    assert "first-record-data" in run(
        bin_folder / "seb", "inspect", fixture, "--records", "1", cwd=tmp_path
    )
    run(bin_folder / "python", "-c", "from seb_appliance.client import Producer", cwd=tmp_path)
    refused = subprocess.run(
        [bin_folder / "seb", "serve"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=OUTSIDE,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "pip install 'seb-appliance[server]'" in refused.stderr
