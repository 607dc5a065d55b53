"""Syslog messages: where one ends in a stream of bytes (RFC 6587), and what its header says."""

from __future__ import annotations

import re
from typing import Final

from seb_appliance.api.encoding.answers import parse_time
from seb_appliance.broker.values import pack_headers
from seb_appliance.protocols.syslog import limits as syslog_limits

AT_ONCE: Final = 500  # messages between two turns of the event loop: less than 2 ms
_EMPTY_LINES: Final = re.compile(rb"(?:[\r\0]*\n)+")
_LENGTH: Final = re.compile(rb"[1-9][0-9]{0,6}")
_PRIORITY: Final = re.compile(rb"<(0|[1-9][0-9]{0,2})>")
_PRIORITY_MAX: Final = 191
_SEVERITIES: Final = 8
# VERSION TIMESTAMP HOSTNAME APP-NAME PROCID MSGID (RFC 5424, 6)
_HEADER: Final = re.compile(
    rb"1 (-|[0-9T:.Z+-]{1,40}) ([!-~]{1,255}) ([!-~]{1,48}) ([!-~]{1,128}) ([!-~]{1,32})(?= |$)"
)
_NAMES: Final = ("hostname", "app_name", "procid", "msgid")
_NIL: Final = b"-"


class BadFrameError(Exception):
    """Where the next message begins is not known: the connection must end."""


class Framer:
    """Splits the bytes of one connection into messages. A frame that begins with a digit is counted
    (`11 <34>1 - …`); every other one ends with a line feed. Of a counted one the message is kept
    byte for byte, but without the one line feed that rsyslog adds to it."""

    def __init__(self) -> None:
        self._rest = b""
        self._bad: BadFrameError | None = None

    @property
    def is_inside(self) -> bool:
        """Whether a message has begun and not ended, once `feed` returns nothing."""
        return bool(self._rest)

    def feed(self, data: bytes = b"") -> list[bytes]:
        """The next messages that are complete, without empty ones, at most AT_ONCE: another call
        returns those behind. Raises BadFrameError for a message of more than SYSLOG_BYTES_MAX, and
        for a count that is none, after those before it were returned."""
        if self._bad is not None:
            raise self._bad
        data, at, messages = self._rest + data, 0, list[bytes]()
        while (at := _after_empty_lines(data, at)) < len(data) and len(messages) < AT_ONCE:
            try:
                begin, end, following = _frame(data, at)
            except BadFrameError as error:
                self._bad = error
                break
            if end is None:
                break
            message = data[begin:end]
            messages.append(
                message.removesuffix(b"\n") or message if begin > at else message.rstrip(b"\r\0")
            )
            at = following
        self._rest = data[at:]
        if self._bad is not None and not messages:
            raise self._bad
        return messages

    def end(self) -> list[bytes]:
        """The last message, if its sender has left without a line feed."""
        rest, self._rest = self._rest.rstrip(b"\r\0"), b""
        return [rest] if rest and not _LENGTH.match(rest) else []


def _after_empty_lines(data: bytes, at: int) -> int:
    found = _EMPTY_LINES.match(data, at)
    return found.end() if found else at


def _frame(data: bytes, at: int) -> tuple[int, int | None, int]:
    """Where its message begins and ends (None: not yet here), and where the next frame begins."""
    digits = _LENGTH.match(data, at)
    if digits is None:
        end = data.find(b"\n", at)
        if (end if end >= 0 else len(data)) - at > syslog_limits.BYTES_MAX:
            raise BadFrameError("a message is too long")
        return (at, None, at) if end < 0 else (at, end, end + 1)
    begin = digits.end() + 1
    if begin > len(data):
        return at, None, at
    if data[begin - 1 : begin] != b" ":
        raise BadFrameError("the length of a message is not followed by a space")
    length = int(digits[0])
    if length > syslog_limits.BYTES_MAX:
        raise BadFrameError(f"a message of {length} bytes is too long")
    end = begin + length
    return (begin, None, at) if end > len(data) else (begin, end, end)


def read_header(message: bytes, latest_us: int) -> tuple[int | None, bytes]:
    """The timestamp (None: there is none, or the sender's clock is wrong: it lies before 1970 or
    after `latest_us`), and the record headers: facility and severity as numbers, and what else the
    header of RFC 5424 names. A message in another form, such as RFC 3164, has what it has."""
    priority = _PRIORITY.match(message)
    if priority is None or int(priority[1]) > _PRIORITY_MAX:
        return None, b""
    facility, severity = divmod(int(priority[1]), _SEVERITIES)
    headers = {"facility": b"%d" % facility, "severity": b"%d" % severity}
    found = _HEADER.match(message, priority.end())
    if found is None:
        return None, pack_headers(headers)
    given = zip(_NAMES, found.groups()[1:], strict=True)
    headers |= {name: value for name, value in given if value != _NIL}
    return _time_us(found[1], latest_us), pack_headers(headers)


def _time_us(text: bytes, latest_us: int) -> int | None:
    try:
        found = None if text == _NIL else parse_time(text.decode())
    except ValueError:
        return None
    return found if found is not None and 0 <= found <= latest_us else None
