"""From a client's PUBLISH to a stored record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from seb_appliance import limits
from seb_appliance.broker.append.quotas import Meter
from seb_appliance.broker.append.transactions import Transaction
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.errors import (
    OverloadedError,
    QuotaExceededError,
    SebError,
    ShareExceededError,
    ShuttingDownError,
)
from seb_appliance.protocols.mqtt.codec import Code, MqttError, Publish
from seb_appliance.protocols.sockets import limits as socket_limits

NO_ROOM: Final = (OverloadedError, QuotaExceededError, ShareExceededError)
_RETRY_S: Final = 0.1  # while there is no room


class Sender(Protocol):
    """The connection that is told."""

    def stored(self, pending: Pending) -> None: ...

    def failed(self, pending: Pending, error: SebError) -> None: ...


class Pending:
    """A message that is being stored; an `AckCallback`."""

    __slots__ = ("_connection", "packet_id", "qos", "size_bytes")

    def __init__(self, connection: Sender, message: Publish) -> None:
        self._connection = connection
        self.qos = message.qos
        self.packet_id = message.packet_id
        self.size_bytes = len(message.payload) + len(message.topic)

    def stored(self, admitted: object, window_s: float, put_s: float) -> None:  # noqa: ARG002
        self._connection.stored(self)

    def failed(self, error: SebError) -> None:
        self._connection.failed(self, error)


class Publisher:
    """Stores messages of one API key: records by topic, in one entry. `patience_ms`: for how long
    the client may get no answer while `store` waits, which holds up all its packets; None: it is
    not known yet."""

    def __init__(self, broker: Broker, key: ApiKeyView) -> None:
        self.patience_ms: int | None = None
        self._broker = broker
        self._key = key

    def store_nowait(self, records: Mapping[str, NewRecords], pending: Pending) -> bool:
        """Whether it is admitted: then `pending` is told. False: `store` decides."""
        meter = self._meter
        if meter is not None:
            try:
                meter.enter()
            except QuotaExceededError:
                return False
            meter.charge_in(pending.size_bytes)
        appends, size_bytes = self._broker.appends, pending.size_bytes
        if len(records) > 1:
            return appends.transact_nowait(self._key, records, size_bytes, pending)
        ((topic, given),) = records.items()
        return appends.append_nowait(self._key, topic, given, size_bytes, pending)

    @property
    def _meter(self) -> Meter | None:
        return self._broker.access.meters.of(self._key)

    async def store(
        self, records: Mapping[str, NewRecords], size_bytes: int, commit: Commit | None = None
    ) -> None:
        """Waits for room, and until it is stored. Raises MqttError."""
        clock = self._broker.clock
        give_up_s = clock.monotonic_s() + socket_limits.NO_ROOM_S_MAX
        while True:
            try:
                await self._store(Transaction(records, commit), size_bytes)
            except NO_ROOM as error:
                if clock.monotonic_s() >= give_up_s:
                    raise MqttError(Code.QUOTA, error.detail) from error
                await clock.sleep(_RETRY_S)
            except SebError as error:
                raise MqttError(code_of(error), error.detail) from error
            else:
                return

    async def _store(self, transaction: Transaction, size_bytes: int) -> None:
        meter = self._broker.access.meters.enter(self._key)
        with Reservation(self._broker.pending, self._key.api_key_id) as reservation:
            reservation.grow(limits.PENDING_REQUEST_BYTES + size_bytes)
            held = reservation.handed_over()
        if meter is not None:
            meter.charge_in(size_bytes)
        await self._broker.appends.transact(
            self._key, transaction, held, patience_ms=self.patience_ms
        )


def code_of(error: SebError) -> int:
    """The reason code for an error of the broker."""
    if isinstance(error, ShuttingDownError):
        return Code.STOPPING
    if isinstance(error, NO_ROOM):
        return Code.QUOTA
    return Code.REFUSED if error.side_effects == "none" and error.status < 500 else Code.UNAVAILABLE
