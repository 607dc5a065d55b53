"""What a release was built from, as an in-toto statement with SLSA provenance.

It is the payload that attestations of Sigstore and of package indexes sign. Source: in-toto
Statement v1, SLSA provenance v1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """A commit and its time in seconds. `clean`: the files are those of the commit."""

    commit: str
    seconds: int
    clean: bool


def statement(digests: Mapping[str, str], source: Source, pins: Path) -> dict[str, Any]:
    """`digests`: SHA-256 of each file by its name."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": one}} for name, one in digests.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "make release",
                "externalParameters": {"clean": source.clean},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": source.commit}},
                    {
                        "name": pins.name,
                        "digest": {"sha256": hashlib.sha256(pins.read_bytes()).hexdigest()},
                    },
                ],
            },
            "runDetails": {"builder": {"id": "local"}},
        },
    }
