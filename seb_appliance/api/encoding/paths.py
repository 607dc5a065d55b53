"""What a path may look like, checked on its raw bytes before anything is decoded.

Percent-decoding first would let different names fall together (`%ff` and `%fe` both become U+FFFD)
and let NUL, CR and `/` into names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from seb_appliance.broker.access.api_keys import no_such_api_key
from seb_appliance.broker.topics.names import check_group_name, check_topic_name
from seb_appliance.errors import NotFoundError


def _no_api_key(name: str) -> str:
    raise no_such_api_key(name)


_NAMED: Final = (  # the segments of a path that come before a name
    (b"/v1/topics/", check_topic_name),
    (b"/v1/groups/", check_group_name),
    (b"/v1/api-keys/", _no_api_key),
)
_TOPIC_OF_GROUP: Final = re.compile(rb"/v1/groups/[^/]*/topics/([^/]*)")
_PLAIN_NAME: Final = re.compile(rb"[A-Za-z0-9_-]{1,128}")
_PLAIN_PATH: Final = re.compile(rb"(?:/[A-Za-z0-9_.~-]+)+|/")


def check_raw_path(raw_path: bytes, others: tuple[bytes, ...] = ()) -> None:
    """`others`: beginnings of paths that a protocol checks itself. Raises
    BadNameError for what is no name, NotFoundError for what no route can match."""
    if raw_path.startswith(others):
        return
    for prefix, check in _NAMED:
        if raw_path.startswith(prefix):
            _check_name(raw_path[len(prefix) :].partition(b"/")[0], check)
    if of_group := _TOPIC_OF_GROUP.match(raw_path):
        _check_name(of_group[1], check_topic_name)
    if not _PLAIN_PATH.fullmatch(raw_path):
        raise NotFoundError(
            "There is nothing at this path: paths here have no escapes, no empty parts and no "
            "slash at their end. /schema lists what there is."
        )


def _check_name(name: bytes, check: Callable[[str], str]) -> None:
    if not _PLAIN_NAME.fullmatch(name):
        check(unquote(name.decode("latin-1")))  # the error shows the name that was meant
        check(name.decode("latin-1"))
