"""Software bill of materials: what an installed appliance consists of, as CycloneDX 1.6.

These are our own wheel, the packages that its extra `server` brings, in the versions of
constraints.txt, and the browser assets in the wheel. The same pins make the same document. Which
package brings which is asked of the packages that are installed here.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from seb_appliance import __version__

Json = dict[str, Any]

ROOT: Final = Path(__file__).parents[1]
OURS: Final = "seb-appliance"
VENDORED: Final = ROOT / "seb_appliance" / "ui" / "static" / "vendor" / "README.md"


def pins() -> dict[str, str]:
    """Name → version, of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return {
        canonicalize_name(name): version for name, _, version in (s.partition("==") for s in lines)
    }


def ours() -> list[str]:
    """What pyproject.toml says that an appliance needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["server"]]


def needs(name: str, extras: frozenset[str]) -> list[Requirement]:
    """What a package needs where we are, with these of its extras."""
    listed = ours() if name == OURS else distribution(name).requires or []
    here = {name: str(value) for name, value in default_environment().items()}
    environments = [{**here, "extra": extra} for extra in (extras or {""})]
    return [
        need
        for need in map(Requirement, listed)
        if need.marker is None or any(need.marker.evaluate(place) for place in environments)
    ]


def graph() -> dict[str, set[str]]:
    """Every package that an appliance runs with → those that it needs itself."""
    edges: dict[str, set[str]] = {}
    done: set[tuple[str, frozenset[str]]] = set()
    left: list[tuple[str, frozenset[str]]] = [(OURS, frozenset())]
    while left:
        name, extras = asked = left.pop()
        if asked in done:
            continue
        done.add(asked)
        found = [(canonicalize_name(n.name), frozenset(n.extras)) for n in needs(name, extras)]
        edges.setdefault(name, set()).update(need for need, _ in found)
        left += found
    return edges


def vendored() -> list[Json]:
    """The rows of the table that lies beside the assets."""
    rows = re.findall(
        r"^\| `[\w-]+/` \| [^|]*\(`([\w.-]+)`\)[^|]*\| ([\w.]+) \| ([\w.-]+)",
        VENDORED.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return [
        component(f"pkg:npm/{name}@{version}", name, version)
        | {"licenses": [{"license": {"id": licence}}]}
        for name, version, licence in rows
    ]


def component(purl: str, name: str, version: str) -> Json:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def sbom() -> Json:
    """The document. Raises KeyError for a package that is installed and has no pin."""
    edges, version_of = graph(), {**pins(), OURS: __version__}
    refs = {name: f"pkg:pypi/{name}@{version_of[name]}" for name in edges}
    libraries = [
        component(refs[name], name, version_of[name]) for name in sorted(edges) if name != OURS
    ]
    assets = vendored()
    whole = {**component(refs[OURS], OURS, __version__), "type": "application"}
    needed = {refs[name]: {refs[need] for need in found} for name, found in edges.items()}
    needed[refs[OURS]] |= {asset["bom-ref"] for asset in assets}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": whole},
        "components": [*libraries, *assets],
        "dependencies": [{"ref": ref, "dependsOn": sorted(needed[ref])} for ref in sorted(needed)],
    }
