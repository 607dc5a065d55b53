"""What a path may look like, checked on its raw bytes before anything is decoded.

Percent-decoding first would let different names fall together (`%ff` and `%fe` both become U+FFFD)
and let NUL, CR and `/` into names.
"""

from __future__ import annotations

import re
from typing import Final

from seb_appliance.broker.names import check_topic_name
from seb_appliance.errors import NotFoundError

_TOPICS: Final = b"/v1/topics/"
_PLAIN_NAME: Final = re.compile(rb"[A-Za-z0-9_-]{1,128}")
_PLAIN_PATH: Final = re.compile(rb"(?:/[A-Za-z0-9_.~-]+)+|/")


def check_raw_path(raw_path: bytes) -> None:
    """Raises BadNameError for what is no topic name, NotFoundError for what no route can match."""
    if raw_path.startswith(_TOPICS):
        name = raw_path[len(_TOPICS) :].partition(b"/")[0]
        if not _PLAIN_NAME.fullmatch(name):
            check_topic_name(name.decode("latin-1"))
    if not _PLAIN_PATH.fullmatch(raw_path):
        raise NotFoundError(
            "There is nothing at this path: paths here have no escapes, no empty parts and no "
            "slash at their end. /schema lists what there is."
        )
