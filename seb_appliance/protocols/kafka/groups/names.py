"""Group ids of Kafka may be any text, names of our groups may not.

A group id that is a name is that name. Any other becomes `kafka-id.` and the id, in which `_` and
two hex digits stand for a byte that no name has: the group `my group` is `kafka-id.my_20group` by
HTTP. Each id has a name of its own, and each name is that of one id.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.topics.names import check_group_name
from seb_appliance.errors import BadNameError

_PREFIX: Final = "kafka-id."
# All but letters, digits, -, and dots between words.
_ESCAPED: Final = re.compile(rb"[^A-Za-z0-9.-]|^\.|\.$|\.(?=\.)")
_BYTE: Final = re.compile(rb"_([0-9A-F]{2})")
_KNOWN_MAX: Final = 4_096


def group_of(group_id: str) -> str:
    """The name of the group. It is no name (`check_group_name`) if it is too long or empty."""
    return _group_of(group_id) if 0 < len(group_id) <= limits.NAME_LENGTH_MAX else group_id


def id_of(group: str) -> str:
    """The group id whose name this is."""
    if not group.startswith(_PREFIX):
        return group
    escaped = group.removeprefix(_PREFIX).encode()
    try:
        group_id = _BYTE.sub(lambda found: bytes.fromhex(found[1].decode()), escaped).decode()
    except UnicodeDecodeError:
        return group
    return group_id if _escape(group_id) == group and _is_escaped(group_id) else group


@lru_cache(_KNOWN_MAX)
def _group_of(group_id: str) -> str:
    return _escape(group_id) if _is_escaped(group_id) else group_id


def _is_escaped(group_id: str) -> bool:
    """Whether it is no name, or the name of another id."""
    try:
        check_group_name(group_id)
    except BadNameError:
        return True
    return id_of(group_id) != group_id


def _escape(group_id: str) -> str:
    return _PREFIX + _ESCAPED.sub(lambda found: b"_%02X" % found[0][0], group_id.encode()).decode()
