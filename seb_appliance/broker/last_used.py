"""When API keys were last used. Not part of the journal: it would cost a PUT to remember a read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from seb_appliance.clock import Clock


class LastUsed:
    """`on_changed` is called when there is something to be written that was not before."""

    def __init__(
        self, known_us: Mapping[str, int], clock: Clock, on_changed: Callable[[], None]
    ) -> None:
        self._used_us = dict(known_us)
        self._changed: set[str] = set()
        self._clock = clock
        self._on_changed = on_changed

    def note(self, api_key_id: str, now_us: int | None = None) -> None:
        """`now_us`: if it is known already."""
        self._used_us[api_key_id] = self._clock.wall_us() if now_us is None else now_us
        if api_key_id in self._changed:
            return
        self._changed.add(api_key_id)
        if len(self._changed) == 1:
            self._on_changed()

    def get(self, api_key_id: str) -> int | None:
        """µs since the epoch; None when it was not used as far as this machine knows."""
        return self._used_us.get(api_key_id)

    def take_changed(self) -> dict[str, int]:
        """What was used since this was last called."""
        changed = {api_key_id: self._used_us[api_key_id] for api_key_id in self._changed}
        self._changed.clear()
        return changed

    def not_written(self, taken: Mapping[str, int]) -> None:
        """What was taken is to be taken once more."""
        was_empty = not self._changed
        self._changed |= taken.keys()
        if was_empty and taken:
            self._on_changed()
