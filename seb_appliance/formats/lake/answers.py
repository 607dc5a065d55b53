"""Rows of an answer as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any


def csv_of(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """RFC 4180, with a line of names. Null is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(names)
    writer.writerows(rows)
    return out.getvalue()
