"""The file of the keys that encrypt secrets: whole, or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from seb_appliance.errors import ConfigurationError
from seb_appliance.ops.host.secret_box import FernetBox

_write = os.write


def full(_descriptor: int, _data: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def nearly_full(descriptor: int, data: bytes) -> int:
    return _write(descriptor, bytes(data)[:20])


@pytest.mark.parametrize("disk", [full, nearly_full])
def test_a_disk_that_was_full_at_the_first_secret_takes_it_when_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: object
) -> None:
    box = FernetBox(tmp_path / "secrets.key")
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", disk)
        with pytest.raises(ConfigurationError, match="No space left"):
            box.seal("secret")
    assert box.open(box.seal("secret")) == "secret"
    assert FernetBox(tmp_path / "secrets.key").open(box.seal("secret")) == "secret"
