"""Numbers in what is stored."""

from __future__ import annotations

from typing import Annotated

import msgspec

from seb_appliance import limits

Whole = Annotated[int, msgspec.Meta(ge=0, le=limits.OFFSET_MAX)]
# µs since the epoch that somebody chose: of the year 9999, say, which is beyond the numbers above.
FarTime = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
