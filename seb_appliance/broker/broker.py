"""The facade that `api/`, `ui/` and the command socket call."""

from __future__ import annotations

from seb_appliance.broker.values import (
    ApiKeyView, Appended, NewBatches, NewRecords, Readiness, ReadRequest, ReadResult, TopicView,
)
from seb_appliance.formats.operations import Grant, TopicSettings


class Broker:
    """INTERFACE SKETCH, being implemented: these signatures hold."""

    pending: "ByteBudget"   # waiting for the bucket; api reserves a body's bytes BEFORE reading it
    reading: "ByteBudget"   # read answers being made or sent

    def authenticate(self, token: str) -> ApiKeyView:
        """The API key of a bearer token `seb_<id>_<secret>_<crc>`. Raises UnauthenticatedError."""

    def authorize(self, key: ApiKeyView, operation: str, topic: str | None = None) -> None:
        """Raises ForbiddenError that names the missing grant. admin grants everything."""

    def may(self, key: ApiKeyView, operation: str, topic: str | None = None) -> bool: ...

    async def append(self, key: ApiKeyView, topic: str, records: NewRecords | NewBatches,
                     reservation: "Reservation", timeout_ms: int | None = None) -> Appended:
        """Raises TopicNotFoundError, RecordTooLargeError, OverloadedError, FencedError,
        ShuttingDownError, OutcomeUnknownError (deadline). Creates the topic when
        auto_create_topics is on and `key` may manage it. Owns `reservation` from the call on (it is
        released when the records no longer wait)."""

    async def read(self, topic: str, request: ReadRequest) -> ReadResult:
        """Raises TopicNotFoundError, OffsetExpiredError, OffsetOutOfRangeError (offset > log end),
        CorruptObjectError, StoreError, OverloadedError (too many waiting)."""

    def topic(self, name: str) -> TopicView: ...          # TopicNotFoundError
    def topics(self) -> list[TopicView]: ...              # by name
    async def create_topic(self, name: str, settings: TopicSettings) -> tuple[TopicView, bool]:
        """(view, whether it was made now). TopicDiffersError when it exists with other settings."""
    async def change_topic(self, name: str, changes: dict[str, int | bool | None]) -> TopicView: ...
    async def delete_topic(self, name: str) -> None: ...

    def api_keys(self) -> list[ApiKeyView]: ...
    def api_key(self, api_key_id: str) -> ApiKeyView: ...  # ApiKeyNotFoundError
    async def create_api_key(self, name: str, grants: tuple[Grant, ...], expires_us: int | None
                             ) -> tuple[ApiKeyView, str]:
        """The key and its token, which is shown once and stored nowhere."""
    async def revoke_api_key(self, api_key_id: str) -> None: ...   # LastAdminKeyError

    async def readiness(self) -> Readiness: ...
    @property
    def stopping(self) -> bool: ...
