"""CloudEvents 1.0 in HTTP: as requests and as answers."""

from __future__ import annotations

from typing import Final

from seb_appliance.api.encoding.answers import EVENT, EVENTS
from seb_appliance.api.encoding.formats import AnswerFormat, BodyFormat
from seb_appliance.protocols.cloud_events.encoding import event_parts, one_event
from seb_appliance.protocols.cloud_events.requests import (
    BATCHED,
    STRUCTURED,
    mode_of,
    parse_records,
)

FORMATS: Final = (
    BodyFormat(
        media_types=(STRUCTURED, BATCHED),
        header_prefix=b"ce-",
        mode_of=mode_of,
        parse=parse_records,
    ),
    AnswerFormat(media_type=EVENTS, page=event_parts),
    AnswerFormat(media_type=EVENT, one=one_event),
)
