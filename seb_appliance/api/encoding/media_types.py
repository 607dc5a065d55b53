"""Content-Type and Accept."""

from __future__ import annotations

from collections.abc import Sequence

from seb_appliance.errors import NotAcceptableError, UnsupportedMediaTypeError


def media_type(content_type: bytes) -> str:
    """The lower-case type without its parameters. A charset other than UTF-8 is refused."""
    named, *parameters = content_type.decode("latin-1").split(";")
    named = named.strip().lower()
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and not named.startswith("text/"):
            charset = value.strip().strip('"').lower()
            if charset not in {"utf-8", "utf8", "us-ascii"}:
                raise UnsupportedMediaTypeError(f"The charset {charset[:50]!r} is not UTF-8.")
    return named


def negotiate(accept: bytes | None, offered: Sequence[str]) -> str:
    """The offered type that the client likes best; of equals, the first one offered.

    Raises NotAcceptableError that lists what is offered.
    """
    if not accept:
        return offered[0]
    ranges = [_quality(part) for part in accept.decode("latin-1").split(",")[:50]]
    best, best_quality = "", 0.0
    for candidate in offered:
        family = candidate.partition("/")[0] + "/*"
        # The most specific range that fits decides (RFC 9110, 12.5.1).
        for wanted in (candidate, family, "*/*"):
            qualities = [quality for named, quality in ranges if named == wanted]
            if qualities:
                if max(qualities) > best_quality:
                    best, best_quality = candidate, max(qualities)
                break
    if not best:
        raise NotAcceptableError(
            f"None of the accepted media types can be served here; {', '.join(offered)} can.",
            supported=list(offered),
        )
    return best


def _quality(part: str) -> tuple[str, float]:
    named, *parameters = part.split(";")
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 0.0
    return named.strip().lower(), quality
