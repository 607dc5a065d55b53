"""Numbers in what is stored."""

from __future__ import annotations

from typing import Annotated

import msgspec

from seb_appliance import limits

Whole = Annotated[int, msgspec.Meta(ge=0, le=limits.OFFSET_MAX)]
