"""The bucket of a Go broker, as LIST shows it: topics, and their files in the order of offsets.

What does not belong to such a bucket is told by name: it is somebody else's, or was mixed up.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import BadNameError, ImportRefusedError
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.stores.object_store import ObjectInfo

_OFFSETS: Final = ".offsets"  # the Go broker's cache of its own listing


@dataclass(slots=True)
class OldTopic:
    """`bases`: the first offset of each file, ascending; `sizes`: its bytes as they are stored."""

    name: str
    bases: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))

    def key(self, i: int) -> str:
        return layout.go_batch_key(self.name, self.bases[i])


@dataclass(slots=True)
class OldBucket:
    """`newest_us`: when the newest file was stored, by the store's clock (0 where that does not
    tell), and `newest_key` its key."""

    topics: list[OldTopic] = field(default_factory=list)
    newest_us: int = 0
    newest_key: str = ""

    @property
    def files(self) -> int:
        return sum(len(topic.bases) for topic in self.topics)

    @property
    def size_bytes(self) -> int:
        return sum(sum(topic.sizes) for topic in self.topics)


async def look(store: RetryingStore, is_wanted: Callable[[str], bool]) -> OldBucket:
    """LIST everything once, our own folder aside. `is_wanted`: which topics to look at. Raises
    ImportRefusedError for a key that no Go broker makes, and for a topic that cannot be ours."""
    found, after = OldBucket(), ""
    while page := await store.list_after("", after):
        for info in page:
            if not info.key.startswith(layout.OURS) and not info.key.endswith(_OFFSETS):
                _take(found, info, is_wanted)
        after = page[-1].key
        if after.startswith(layout.OURS):
            after = layout.OURS[:-1] + "0"  # the byte after "/": behind all of that folder
    return found


def _take(found: OldBucket, info: ObjectInfo, is_wanted: Callable[[str], bool]) -> None:
    folder, _, name = info.key.rpartition("/")
    if not folder or not name.endswith(".record_batch"):
        raise ImportRefusedError(
            f"{info.key} is no file of a Go broker. Move away what is not its own, or name the "
            "prefix below which its topics lie."
        )
    if not is_wanted(folder):
        return
    try:
        check_topic_name(folder)
    except BadNameError as error:
        raise ImportRefusedError(
            f"The topic of {info.key} cannot have its name here. {error.detail} Leave it out: "
            "--topic says which topics are wanted."
        ) from error
    place = layout.parse_go_batch(info.key)
    if place is None:
        raise ImportRefusedError(f"{info.key}: the name is not an offset of 12 digits.")
    if not found.topics or found.topics[-1].name != folder:
        found.topics.append(OldTopic(folder))
    found.topics[-1].bases.append(place[1])
    found.topics[-1].sizes.append(info.size)
    if (info.modified_us or 0) >= found.newest_us:
        found.newest_us, found.newest_key = info.modified_us or 0, info.key
