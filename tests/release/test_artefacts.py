"""A release is the same wherever it is built, and is checked before it is published."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import artefacts
from release.image import ARCHITECTURES, remove_scripts
from release.layers import Layer
from release.oci import Archive, Image
from release.provenance import statement
from seb_appliance import __version__
from seb_appliance.settings import SETTINGS

RELEASE = Path(__file__).parents[2] / "release"
FILES = {"usr/bin/seb": b"#!", "etc/passwd": b"seb", "usr/lib/a/b.py": b"1"}


def layer(order: list[str]) -> bytes:
    made = Layer(1_700_000_000)
    for name in order:
        made.add(name, FILES[name], 0o755 if name.endswith("seb") else 0o644)
    made.add_directory("var/lib/seb", 65532)
    return made.tar()


def test_the_bytes_of_a_layer_depend_on_its_files_alone() -> None:
    orders = [random.Random(seed).sample(list(FILES), len(FILES)) for seed in range(5)]
    assert len({layer(order) for order in orders}) == 1


def test_a_layer_has_every_directory_before_what_is_in_it() -> None:
    with tarfile.open(fileobj=io.BytesIO(layer(list(FILES)))) as file:
        names = file.getnames()
        assert file.getmember("var/lib/seb").uid == 65532
        assert file.getmember("usr/bin/seb").mode == 0o755
    for name in names:
        parents = [str(one) for one in Path(name).parents if one != Path()]
        assert all(names.index(one) < names.index(name) for one in parents), name


def test_an_image_has_nothing_that_names_the_python_that_built_it(tmp_path: Path) -> None:
    record = tmp_path / "some-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("some/a.py,sha256=1,2\n../../bin/some,sha256=of-a-path,3\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "some").write_text("#!of-a-path\n")
    remove_scripts(tmp_path)
    assert record.read_text() == "some/a.py,sha256=1,2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["some-1.0.dist-info"]


def blobs(path: Path) -> tuple[dict[str, bytes], Any]:
    with tarfile.open(path) as file:
        contents = {m.name: file.extractfile(m).read() for m in file if m.isreg()}  # type: ignore[union-attr]
    return contents, json.loads(contents["index.json"])


def test_an_archive_holds_what_its_digests_name(tmp_path: Path) -> None:
    archive = Archive(1_700_000_000)
    for architecture in ARCHITECTURES:
        image = Image(architecture, [layer(list(FILES))], {"Cmd": ["serve"]})
        archive.add(image, {"org.opencontainers.image.version": __version__})
    archive.write(tmp_path / "image.tar", f"seb-appliance:{__version__}")
    contents, index = blobs(tmp_path / "image.tar")
    for name, content in contents.items():
        if name.startswith("blobs/"):
            assert hashlib.sha256(content).hexdigest() == name.rpartition("/")[2]
    (top,) = index["manifests"]
    read = lambda item: contents["blobs/" + item["digest"].replace(":", "/")]  # noqa: E731
    manifests = json.loads(read(top))["manifests"]
    assert [one["platform"]["architecture"] for one in manifests] == list(ARCHITECTURES)
    manifest = json.loads(read(manifests[0]))
    config = json.loads(read(manifest["config"]))
    unpacked = gzip.decompress(read(manifest["layers"][0]))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(unpacked).hexdigest()}"]


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    (tmp_path / "seb.whl").write_bytes(b"a wheel")
    document = statement({}, artefacts.source(), artefacts.PINS)
    (tmp_path / "seb.intoto.json").write_text(json.dumps(document), encoding="utf-8")
    artefacts.write_checksums(tmp_path)
    return tmp_path


def test_a_release_that_is_as_it_was_built_can_be_published(dist: Path) -> None:
    assert artefacts.damaged(dist) == []
    subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=dist, check=True)


def test_a_file_that_changed_came_or_went_is_not_published(dist: Path) -> None:
    (dist / "seb.whl").write_bytes(b"another wheel")
    assert "is not the file that was built" in " ".join(artefacts.damaged(dist))
    (dist / "seb.whl").write_bytes(b"a wheel")
    (dist / "old.whl").write_bytes(b"of the version before")
    assert "is not part of the release" in " ".join(artefacts.damaged(dist))


def test_a_release_of_another_commit_is_not_published(dist: Path) -> None:
    other = artefacts.Source("0" * 40, 1, clean=True)
    document = statement({}, other, artefacts.PINS)
    (dist / "seb.intoto.json").write_text(json.dumps(document), encoding="utf-8")
    artefacts.write_checksums(dist)
    assert "another commit" in " ".join(artefacts.damaged(dist))


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml"])
def test_a_manifest_names_this_version_and_settings_that_exist(name: str) -> None:
    text = (RELEASE / name).read_text(encoding="utf-8")
    assert f"seb-appliance:{__version__}" in text
    known = {setting.variable for setting in SETTINGS} | {"SEB_IMAGE"}
    used = set(re.findall(r"SEB_[A-Z0-9_]+", text))
    assert "SEB_BUCKET" in used
    assert used <= known
    assert list(yaml.safe_load_all(text))
