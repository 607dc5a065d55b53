"""What happened, in order: a digest of it always, the lines themselves when somebody reads them."""

from __future__ import annotations

import hashlib


class Trace:
    """Two runs are the same bit for bit if their digests are."""

    def __init__(self, *, kept: bool = False) -> None:
        self.lines: list[str] = []
        self._kept = kept
        self._hash = hashlib.blake2b(digest_size=16)

    def note(self, now_s: float, who: str, what: str, *details: object) -> None:
        line = f"{now_s:.6f} {who} {what} {' '.join(map(str, details))}\n"
        self._hash.update(line.encode())
        if self._kept:
            self.lines.append(line.rstrip())

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
