"""Listing a directory as an object store lists keys: in the order of bytes, from a given key on.

A folder takes part in the order with its slash: "a-b" < "a/b" < "a0". Only folders that can hold a
wanted key are read. Symbolic links, temporary files and whatever else is no file are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import Final

from seb_appliance.storage.object_store import ObjectInfo
from seb_appliance.storage.temporary_files import TEMPORARY_FOLDER

_TEMPORARY: Final = os.fsencode(TEMPORARY_FOLDER) + b"/"


def list_objects(root: Path, prefix: str, after: str, limit: int) -> list[ObjectInfo]:
    """At most `limit` objects whose key begins with `prefix` and is greater than `after`."""
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
        low = _just_after(page[-1])


def _just_after(name: bytes) -> bytes:
    """The least key above `name`; above everything in it, where it is a folder."""
    return name[:-1] + b"0" if name.endswith(b"/") else name + b"\0"


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
