"""Bugs of streams planted in the product, as in mutations.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.streams.admission import StreamAdmission, StreamView
from seb_appliance.broker.streams.streams import Streams


def stream_deleted_meanwhile_was_never_there() -> contextlib.AbstractContextManager[Any]:
    """An append that was stored is told as refused, if its stream was deleted with it."""
    return mock.patch.object(Streams, "_as_stored", Streams._living)


def stream_forgets_who_came_before_its_end() -> contextlib.AbstractContextManager[Any]:
    """What is repeated once the stream is closed is told as refused."""

    def closed(self: StreamAdmission, name: str, *_: Any) -> Any:
        raise self._admission.closed(name)

    return mock.patch.object(StreamAdmission, "_repeat_of_the_end", closed)


def stream_ends_before_that_is_stored() -> contextlib.AbstractContextManager[Any]:
    """A stream is shown as closed while the end is on its way."""
    real = Streams.get

    def ahead(self: Streams, name: str) -> StreamView:
        view = real(self, name)
        with contextlib.suppress(Refusal):
            known = self._admission.living(name)
            if known.stream is not None:
                view = replace(view, state=known.stream)
        return view

    return mock.patch.object(Streams, "get", ahead)


OF_STREAMS: list[Callable[[], contextlib.AbstractContextManager[Any]]] = [
    stream_deleted_meanwhile_was_never_there,
    stream_forgets_who_came_before_its_end,
    stream_ends_before_that_is_stored,
]
