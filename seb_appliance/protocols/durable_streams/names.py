"""Paths of streams, and the topics that they are: one topic for each path, and back.

The parts between slashes are the words between dots. In them letters, digits, `-` and `_` stand for
themselves, and every other character is `_` with two hexadecimal digits in capitals, as is an `_`
that could be taken for such an escape. So `chat/room:1` is `chat.room_3A1`.

Only visible ASCII comes into a path: of characters that look alike there is one.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from seb_appliance import limits
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import BadNameError

PREFIX: Final = b"/v1/stream/"
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_PART: Final = re.compile(r"[A-Za-z0-9._~:@!$&'()*+,;=-]+")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]|_(?=[0-9A-F]{2})")
_ESCAPED: Final = re.compile(r"_([0-9A-F]{2})")
_SAFE: Final = "~:@!$&'()*+,;=/"


def topic_of(raw_path: bytes) -> str:
    """The topic of a stream's path, as it came. Raises BadNameError."""
    given = raw_path.removeprefix(PREFIX)
    if given == raw_path or not given or len(given) > limits.STREAM_PATH_CHARACTERS_MAX:
        raise BadNameError(
            f"A stream's path is {PREFIX.decode()} and 1 to {limits.STREAM_PATH_CHARACTERS_MAX} "
            "characters."
        )
    words = [_word(part) for part in given.split(b"/")]
    return check_topic_name(".".join(words))


def _word(part: bytes) -> str:
    text = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), part).decode("latin-1")
    if not _PART.fullmatch(text) or text in {".", ".."}:
        raise BadNameError(
            "A part of a stream's path has letters, digits and -._~:@!$&'()*+,;= and is neither "
            "empty nor . nor .. ; a slash cannot be escaped."
        )
    return _FOREIGN.sub(lambda found: f"_{ord(found[0]):02X}", text)


def path_of(topic: str) -> str | None:
    """The path of the stream that the topic is; None for a topic that no path names."""
    words = (_ESCAPED.sub(lambda found: chr(int(found[1], 16)), word) for word in topic.split("."))
    path = PREFIX.decode() + quote("/".join(words), safe=_SAFE)
    try:
        return path if topic_of(path.encode()) == topic else None
    except BadNameError:
        return None
