"""What was admitted and is not stored yet, by key; forgotten when its window is done."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from seb_appliance.broker.window import Window

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Ahead(Generic[K, V]):
    """The last value set for a key, while the window that set it is not done. Then the catalog
    says the same, or nobody will ever (fenced)."""

    def __init__(self) -> None:
        self._values: dict[K, tuple[V, Window]] = {}
        self._keys_of: dict[Window, list[K]] = {}

    def get(self, key: K) -> V | None:
        found = self._values.get(key)
        return found[0] if found is not None else None

    def window_of(self, key: K) -> Window | None:
        found = self._values.get(key)
        return found[1] if found is not None else None

    def set(self, key: K, value: V, window: Window) -> None:
        if window not in self._keys_of:
            self._keys_of[window] = []
            window.when_done(lambda _: self._forget(window), lambda _: self._forget(window))
        self._keys_of[window].append(key)
        self._values[key] = (value, window)

    def _forget(self, window: Window) -> None:
        for key in self._keys_of.pop(window):
            found = self._values.get(key)
            if found is not None and found[1] is window:
                del self._values[key]
