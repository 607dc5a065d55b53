"""How long windows stay open for topics that set nothing themselves."""

from __future__ import annotations

from seb_appliance.formats.operations import TopicSettings


class Linger:
    """`default_ms`: of now. Whoever keeps to a budget changes it; a window that is open already
    keeps the time that it has."""

    def __init__(self, default_ms: int) -> None:
        self.default_ms = default_ms

    def of(self, settings: TopicSettings) -> int:
        """How long a window may wait for a topic with these settings, as they were set, in ms."""
        return self.default_ms if settings.linger_ms is None else settings.linger_ms
