"""What a check's child process and its parent say to each other, as frames (tidier_pipe.py).

The parent sends one `Ask`; the child answers with any number of `Told`, the last of which is done.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from seb_appliance.settings import Settings
from seb_appliance.ui.facts import CheckKind


class Ask(msgspec.Struct):
    """`settings`: of the appliance, with which the child makes its own store. `folder`: where its
    temporary files may lie; the parent removes it."""

    kind: CheckKind
    settings: Settings
    folder: Path


class Told(msgspec.Struct):
    """Progress in words, or (`is_done`) what was found: `data` as `seb doctor --json` and
    `seb fsck --json` print it; a `failure` is a sentence that says why nothing was."""

    progress: str = ""
    is_done: bool = False
    is_well: bool = False
    data: dict[str, Any] = {}
    failure: str = ""
