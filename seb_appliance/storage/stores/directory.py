"""The object store in a directory: as durable as the disk under it.

An object is a file whose relative path is its key. It appears whole and durable, or not at all:
its bytes are synced in a temporary file first, then the file is linked (create) or renamed (put)
to its name, then the folder is synced. Several processes may use one directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from seb_appliance import limits
from seb_appliance.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreError,
    StoreUncertainError,
)
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints
from seb_appliance.storage.stores.object_store import (
    Durability,
    LocalStore,
    ObjectInfo,
    ObjectRange,
    too_large,
)

T = TypeVar("T")

THREADS: Final = 8
TEMPORARY_FOLDER: Final = ".tmp"  # in the root: links must stay within one file system
_TEMPORARY_NAME: Final = re.compile(r"[0-9a-f]{32}")
_TEMPORARY: Final = os.fsencode(TEMPORARY_FOLDER) + b"/"
# A retry cannot help: somebody must change the disk or its permissions.
_DENIED: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}
# No regular file has this name: it is free, a folder, below a file, or a symbolic link.
_MISSING: Final = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ELOOP}


@contextlib.contextmanager
def _temporary_file(folder: Path) -> Iterator[tuple[Path, int]]:
    """A new file: its path and descriptor. It is closed at the end, and removed unless renamed.

    The process holds a lock on it. The kernel releases the lock when the process dies, so
    `_remove_abandoned` can tell an abandoned file from one in use."""
    folder.mkdir(exist_ok=True)  # not before: a process that only reads creates nothing
    path = folder / secrets.token_hex(16)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield path, file
    finally:
        os.close(file)
        path.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary files of processes that died. Raises OSError for a symbolic link in
    place of the folder: what is behind it is somebody else's."""
    if folder.is_symlink():
        raise OSError(errno.ELOOP, f"{folder.name} in it is a symbolic link")
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        with os.scandir(opened) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        for name in filter(_TEMPORARY_NAME.fullmatch, names):
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                file = os.open(name, flags, dir_fd=opened)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=opened)
                finally:
                    os.close(file)
    finally:
        os.close(opened)


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]


def list_objects(root: Path, prefix: str, after: str, limit: int) -> list[ObjectInfo]:
    """At most `limit` objects whose key begins with `prefix` and is greater than `after`, in byte
    order. A folder is ordered by its name with the slash: "a-b" < "a/b" < "a0". Symbolic links,
    temporary files and everything else that is not a file are left out."""
    return list(islice(_objects(os.fsencode(root) + b"/", prefix, after, limit), limit))


def _objects(root: bytes, prefix: str, after: str, limit: int) -> Iterator[ObjectInfo]:
    wanted, excluded = os.fsencode(prefix), os.fsencode(after)
    parent = wanted[: wanted.rfind(b"/") + 1]
    for key in _keys_from(root, parent, max(wanted, excluded), limit):
        if not key.startswith(wanted):
            return
        if key == excluded:
            continue
        try:
            status = os.lstat(root + key)
        except FileNotFoundError:
            continue  # deleted since the folder was read
        modified_us = status.st_mtime_ns // 1000
        yield ObjectInfo(key=os.fsdecode(key), size=status.st_size, modified_us=modified_us)


def _keys_from(root: bytes, folder: bytes, low: bytes, limit: int) -> Iterator[bytes]:
    """Keys ≥ `low` under `folder` (empty, or with its slash), in order."""
    while True:
        names = _names_from(root, folder, low)
        # A journal folder holds tens of thousands of names; a page needs the first few of them.
        page = nsmallest(limit + 1, names) if len(names) > 2 * limit else sorted(names)
        for name in page:
            if name.endswith(b"/"):
                yield from _keys_from(root, name, low, limit)
            else:
                yield name
        if len(page) == len(names):
            return
        # The least key above the last name; if that is a folder, above everything in it.
        low = page[-1][:-1] + b"0" if page[-1].endswith(b"/") else page[-1] + b"\0"


def _names_from(root: bytes, folder: bytes, low: bytes) -> list[bytes]:
    """Files and folders (with a slash) in `folder` that are, or can hold, a key ≥ `low`."""
    names: list[bytes] = []
    try:
        with os.scandir(root + folder) as entries:
            for entry in entries:
                name = folder + entry.name
                if name >= low and entry.is_file(follow_symlinks=False):
                    names.append(name)
                    continue
                within = name + b"/"
                if (
                    (within >= low or low.startswith(within))
                    and within != _TEMPORARY
                    and entry.is_dir(follow_symlinks=False)
                ):
                    names.append(within)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return names


class DirectoryStore(LocalStore):
    """An `ObjectStore` in the folder `root`, which is created if absent.

    The constructor removes temporary files that a crash left and syncs the folders, so that every
    visible object is durable. Raises OSError if `root` cannot be used. Requests fail while another
    folder is at its path: after a file system is unmounted, what was stored would be elsewhere.
    """

    durability: Durability = "disk"

    def __init__(self, root: Path, failpoints: Failpoints = NO_FAILPOINTS) -> None:
        self._root = root.absolute()
        self.description = f"file:{self._root}"
        self._failpoints = failpoints
        self._durable_folders = {self._root}
        _make_root(self._root)
        _remove_abandoned(self._root / TEMPORARY_FOLDER)
        # A process that died between naming an object and syncing its folder left a name that the
        # next power failure could remove, after replay had relied on it.
        for folder, _, _ in os.walk(self._root):
            _sync_folder(Path(folder))
        # Open until the end: its file system is busy, and no other folder gets its number.
        self._opened = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._release = weakref.finalize(self, os.close, self._opened)
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="directory-store")

    async def create(self, key: str, body: bytes) -> None:
        # link(2) fails if the name is taken; rename(2) overwrites. Both are atomic.
        await self._run(key, partial(self._write, key, body, os.link))

    async def put(self, key: str, body: bytes) -> None:
        await self._run(key, partial(self._write, key, body, os.replace))

    async def get(self, key: str) -> bytes:
        return (await self._run(key, partial(self._read, key, 0, None))).data

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        return await self._run(key, partial(self._read, key, start, length))

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        if folder := prefix.rpartition("/")[0]:
            _check_key(folder)
        elif prefix.startswith("/") or "\0" in prefix:
            raise ValueError(f"{prefix!r} is not the beginning of a key")
        return await self._run(prefix, partial(list_objects, self._root, prefix, after, limit))

    async def head(self, key: str) -> ObjectInfo:
        whole = await self._run(key, partial(self._read, key, 0, 0))
        return ObjectInfo(key=key, size=whole.total_size)

    async def delete(self, key: str) -> None:
        await self._run(key, partial(self._delete, key))

    async def close(self) -> None:
        """Wait for the requests under way, then end the threads."""
        await asyncio.to_thread(self._executor.shutdown)
        self._release()

    async def _run(self, key: str, request: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._in_place, request)
        except OSError as error:
            raise _meaning(error, key) from error

    def _in_place(self, request: Callable[[], T]) -> T:
        try:
            is_ours = os.path.samestat(self._root.stat(), os.fstat(self._opened))
        except (FileNotFoundError, NotADirectoryError):
            is_ours = False
        if not is_ours:
            raise OSError(errno.ESTALE, f"{self._root} is another folder: unmounted or moved")
        return request()

    def _write(self, key: str, body: bytes, publish: Callable[[Path, Path], None]) -> None:
        _check_key(key)
        path = self._root / key
        self._failpoints.reach("K4")
        try:
            self._make_folder(path.parent)
            self._write_and_publish(path, body, publish)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            # Not an answer about the key: somebody moved or deleted folders or files.
            self._durable_folders = {self._root}
            raise OSError(errno.EAGAIN, "a folder or temporary file went away") from error
        self._failpoints.reach("K6")

    def _write_and_publish(
        self, path: Path, body: bytes, publish: Callable[[Path, Path], None]
    ) -> None:
        data = memoryview(body)
        with _temporary_file(self._root / TEMPORARY_FOLDER) as (temporary, file):
            # In two halves, for the failpoint between them.
            _write(file, data[: len(data) // 2])
            self._failpoints.reach("K5")
            _write(file, data[len(data) // 2 :])
            os.fsync(file)
            try:
                publish(temporary, path)
            finally:
                # Also if the name is taken: the caller may then rely on that object.
                _sync_folder(path.parent)

    def _make_folder(self, folder: Path) -> None:
        """Create `folder` and its parents and make their names durable, whoever created them."""
        if folder in self._durable_folders:
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)
        self._durable_folders.add(folder)

    def _read(self, key: str, start: int, length: int | None) -> ObjectRange:
        _check_key(key)
        # A pipe at this place must not be waited for.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(self._root / key, flags)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "not a regular file", key)
            size = status.st_size
            if length is None and size > limits.OBJECT_BYTES_MAX:
                raise too_large(key, size)
            end = size if length is None else min(start + length, size)
            return ObjectRange(data=_read_exactly(file, start, end), total_size=size)
        finally:
            os.close(file)

    def _delete(self, key: str) -> None:
        _check_key(key)
        path = self._root / key
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return
        _sync_folder(path.parent)


def _check_key(key: str) -> None:
    """Raises ValueError unless `key` names a file below the root, other than a temporary one."""
    parts = key.split("/")
    if "\0" in key or any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"{key!r} is not the key of an object in a directory")
    if parts[0] == TEMPORARY_FOLDER:
        raise ValueError(f"{key!r} is a key in the folder of temporary files")


def _meaning(error: OSError, key: str) -> StoreError:
    """The store error that a failed system call stands for."""
    what = f"{key}: {error.strerror or error}"
    if error.errno == errno.EEXIST:
        return ObjectExistsError(f"{key} exists already", key=key)
    if error.errno in _MISSING:
        return ObjectMissingError(f"there is no object {key}", key=key)
    if error.errno in _DENIED:
        return StoreDeniedError(f"the disk refuses {what}; check its permissions", key=key)
    return StoreUncertainError(f"the disk failed at {what}", key=key)


def _read_exactly(file: int, start: int, end: int) -> bytes:
    data = os.pread(file, max(0, end - start), start)
    while start + len(data) < end:  # one read(2) gives 2 GiB at most
        piece = os.pread(file, end - start - len(data), start + len(data))
        if not piece:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        data += piece
    return data


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _make_root(root: Path) -> None:
    """Create `root`, for this user only (to share a bucket, create its folder first), and its
    parents. Only the parents of folders that are created here need to be readable."""
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700 if folder == root else 0o777, exist_ok=True)
        _sync_folder(folder.parent)
