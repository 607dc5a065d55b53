"""Acknowledgements that are stored with the records and offsets of a transaction, all or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.queues.live_queue import LiveQueue
from seb_appliance.broker.queues.views import Result
from seb_appliance.errors import LeaseEndedError

Standing = Callable[[LiveQueue, str], tuple[Place | None, Result]]


class AckTogether:
    """See `appends.Acknowledging`. `standing`: the place that a token names, if its lease is
    live."""

    def __init__(self, live: LiveQueue, tokens: Sequence[str], standing: Standing) -> None:
        self._live = live
        self._tokens = list(dict.fromkeys(tokens))
        self._standing = standing
        self._places: list[Place] = []

    def check(self) -> None:
        found = [self._standing(self._live, token) for token in self._tokens]
        results = [result for _, result in found]
        if any(result != "ok" for result in results):
            error = LeaseEndedError(
                f"{sum(result != 'ok' for result in results)} of {len(results)} deliveries of "
                f"queue {self._live.name!r} are not this worker's any more; nothing was stored.",
                results=results,
            )
            raise Refusal(error, None)
        self._places = [place for place, _ in found if place is not None]

    def admit(self, window: Window) -> None:
        for place in self._places:
            self._live.settle_out(window, place, "acked")
        self._live.moved()
