"""Layers of an image: tar files whose bytes depend on their content alone."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_DIRECTORY: Final = 0o755


class Layer:
    """A tar file: names in order, owners as numbers, every time is `mtime` (seconds)."""

    def __init__(self, mtime: int) -> None:
        self._mtime = mtime
        self._members: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """A file of root's. `name` is relative to the root of the image."""
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), mode
        self._put(member, content)

    def add_directory(self, name: str, owner: int = 0) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.mode = tarfile.DIRTYPE, _DIRECTORY
        member.uid = member.gid = owner
        self._put(member, b"")

    def add_tree(self, tree: Path, name: str) -> None:
        """All files below `tree`, as root's; executable ones stay executable."""
        for path in sorted(tree.rglob("*")):
            if path.is_file():
                mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
                self.add(f"{name}/{path.relative_to(tree).as_posix()}", path.read_bytes(), mode)

    def add_member(self, member: tarfile.TarInfo, content: bytes) -> None:
        """A member of another tar file, with its kind, mode and owner."""
        copy = tarfile.TarInfo(member.name.removeprefix("./"))
        copy.type, copy.mode, copy.linkname = member.type, member.mode, member.linkname
        copy.uid, copy.gid, copy.size = member.uid, member.gid, len(content)
        self._put(copy, content)

    def tar(self) -> bytes:
        """The file, with the directories that its members need."""
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT) as file:
            for _, (member, content) in sorted(self._members.items()):
                file.addfile(member, io.BytesIO(content) if member.isreg() else None)
        return written.getvalue()

    def _put(self, member: tarfile.TarInfo, content: bytes) -> None:
        member.mtime = self._mtime
        for parent in Path(member.name).parents:
            if parent != Path() and str(parent) not in self._members:
                self.add_directory(str(parent))
        self._members[member.name] = (member, content)


def members(file: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """The members of a tar file with their content. A hard link becomes a file of its own."""
    with tarfile.open(file) as opened:
        for member in opened:
            content = opened.extractfile(member) if member.isreg() or member.islnk() else None
            if member.islnk():
                member.type = tarfile.REGTYPE
            yield member, content.read() if content else b""
