"""What an API key may do and use: grants and quotas, each quota declared in one place."""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

import msgspec

from seb_appliance import limits
from seb_appliance.formats.declared import Declared, declared

GrantOperation = Literal["produce", "consume", "work", "manage", "admin"]
GRANT_OPERATIONS: Final[tuple[GrantOperation, ...]] = get_args(GrantOperation)


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an API key may do, on topics that match a pattern (`*` one word, `**` zero or more), and
    for consumer groups that match another."""

    operation: GrantOperation
    topics: str = "**"
    groups: str = "**"

    @staticmethod
    def parse(text: str) -> Grant:
        """`consume:orders.*:lake`. Raises ValueError with a sentence."""
        members = dict(zip(("operation", "topics", "groups"), text.split(":", 2), strict=False))
        is_whole = all(members.values()) and ":" not in members.get("groups", "")
        if not is_whole or members["operation"] not in GRANT_OPERATIONS:
            raise ValueError(
                f"{text!r} is not a grant. A grant is OPERATION[:TOPICS[:GROUPS]], such as "
                f"consume:orders.*:lake, where OPERATION is one of {', '.join(GRANT_OPERATIONS)}"
            )
        return msgspec.convert(members, Grant)

    def text(self) -> str:
        """As `parse` reads it, without what means "all"."""
        words = [self.operation, self.topics, self.groups]
        while words[-1] == "**":
            words.pop()
        return ":".join(words)


_MOST: Final = (1, limits.OFFSET_MAX)
PerSecond = Annotated[int, msgspec.Meta(ge=1, le=limits.OFFSET_MAX)]


class Quotas(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an API key may use a second, on the mean; None: as much as it likes."""

    requests_per_second: Annotated[
        PerSecond | None, Declared("number", "Requests a second", "Most requests a second.", _MOST)
    ] = None
    bytes_in_per_second: Annotated[
        PerSecond | None,
        Declared("size", "Bytes in a second", "Most bytes written a second.", _MOST),
    ] = None
    bytes_out_per_second: Annotated[
        PerSecond | None, Declared("size", "Bytes out a second", "Most bytes read a second.", _MOST)
    ] = None


QUOTAS: Final = declared(Quotas)
