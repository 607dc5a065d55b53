"""An OCI archive: one image for several architectures, as `podman load` and `docker load` take it.

Source: OCI image format specification 1.1. The healthcheck is Docker's addition to it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from release.layers import Layer

Json = dict[str, Any]

_TYPE: Final = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Image:
    """`layers`: tar files, the lowest first. `config`: how a container is started, as in the field
    `config` of the specification."""

    architecture: str
    layers: Sequence[bytes]
    config: Json


class Archive:
    """The blobs of an archive. Every time in it is `mtime` (seconds)."""

    def __init__(self, mtime: int) -> None:
        self._mtime = mtime
        self._layer = Layer(mtime)
        self._index: list[Json] = []

    def add(self, image: Image, annotations: Mapping[str, str]) -> int:
        """Return the size of the compressed layers in bytes."""
        created = datetime.fromtimestamp(self._mtime, UTC).isoformat().replace("+00:00", "Z")
        layers = [gzip.compress(layer, 9, mtime=0) for layer in image.layers]
        config = {
            "created": created,
            "architecture": image.architecture,
            "os": "linux",
            "config": image.config,
            "rootfs": {"type": "layers", "diff_ids": [_digest(one) for one in image.layers]},
            "history": [{"created": created, "created_by": "make release"} for _ in layers],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}.manifest.v1+json",
            "config": self._blob(_json(config), "config.v1+json"),
            "layers": [self._blob(layer, "layer.v1.tar+gzip") for layer in layers],
            "annotations": dict(annotations),
        }
        platform = {"architecture": image.architecture, "os": "linux"}
        self._index.append(self._blob(_json(manifest), "manifest.v1+json") | {"platform": platform})
        return sum(map(len, layers))

    def write(self, path: Path, name: str) -> None:
        """`name`: of the image with its tag, as in `docker run NAME`."""
        index = {
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}.index.v1+json",
            "manifests": self._index,
        }
        top = self._blob(_json(index), "index.v1+json")
        named = top | {"annotations": {"org.opencontainers.image.ref.name": name}}
        self._layer.add("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        self._layer.add("index.json", _json(index | {"manifests": [named]}))
        path.write_bytes(self._layer.tar())

    def _blob(self, content: bytes, kind: str) -> Json:
        digest = _digest(content)
        self._layer.add(f"blobs/{digest.replace(':', '/')}", content)
        return {"mediaType": f"{_TYPE}.{kind}", "digest": digest, "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(document: Json) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True).encode()
