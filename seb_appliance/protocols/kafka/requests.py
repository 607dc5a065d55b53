"""A request and its answer; who handles which API."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from seb_appliance import limits
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError
from seb_appliance.protocols.kafka.stalling import Stored
from seb_appliance.protocols.kafka.wire.codec import Api, Message


class Standing(Protocol):
    """A Fetch that was answered, and goes on to wait in case it is repeated."""

    def repeat(self, request: Request) -> bool: ...

    def leave(self) -> None: ...


class Caller(Protocol):
    """The connection of a request. `key`: its API key; `holds_key`: that is as it was. `software`:
    what the client calls itself. `wants_token`: the next request is a bare SASL token, as
    SaslHandshake 0 has it. `standing`: the last Fetch; who takes it away lets it leave."""

    broker: Broker
    client_id: str
    software: str
    address: str
    wants_token: bool
    standing: Standing | None

    @property
    def key(self) -> ApiKeyView: ...

    def authenticate(self, token: str) -> None: ...

    def answered(self, request: Request) -> None: ...

    @property
    def holds_key(self) -> bool: ...

    @property
    def has_quotas(self) -> bool: ...

    def end(self, reason: str) -> None: ...

    def failed(self, request: Request) -> None: ...

    def hold(self, request: Request) -> None: ...

    def go_on(self) -> None: ...

    def run(self, request: Request, outcome: Coroutine[Any, Any, Message | None]) -> None: ...


class Request:
    """`body`: the message; of a Fetch that `is_repeated` the same one as before. `message`: the
    answer, or all bytes of it. `acquired`: memory of the answer, which is held until that is sent.
    `interrupt`: called when the appliance stops, or the client goes, while this waits. `stored`:
    how long its records waited."""

    __slots__ = (
        "acquired",
        "api",
        "body",
        "caller",
        "correlation_id",
        "interrupt",
        "is_answered",
        "is_repeated",
        "is_version_unknown",
        "message",
        "stored",
        "version",
    )

    def __init__(
        self, caller: Caller, api: Api, version: int, correlation_id: int, body: Message
    ) -> None:
        self.caller = caller
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.body = body
        self.is_version_unknown = False
        self.is_answered = False
        self.is_repeated = False
        self.message: Message | bytes | None = None
        self.acquired: Reservation | None = None
        self.interrupt: Callable[[], None] | None = None
        self.stored: Stored | None = None

    def answer(self, message: Message | bytes | None) -> None:
        """None: the client wants no answer. Called once. Bytes say of no quota that it makes the
        client wait: who `has_quotas` gets messages."""
        assert not self.is_answered, self.api.name
        self.is_answered = True
        self.message = message
        self.interrupt = None
        self.caller.answered(self)

    @property
    def actor(self) -> Actor:
        """The API key, for the audit."""
        return Actor.of_key(self.caller.key, self.caller.address)

    def check_manages(self, topic: str) -> None:
        """Raises KafkaError without a grant."""
        if not self.may("manage", topic):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise KafkaError(code, f"The API key has no grant to manage {topic!r}.")

    def may(self, operation: str, topic: str | None = None, group: str | None = None) -> bool:
        """Whether a grant of the API key covers it. No name is so long that it could be."""
        if max(len(topic or ""), len(group or "")) > limits.NAME_LENGTH_MAX:
            return False
        return self.caller.broker.may(self.caller.key, operation, topic, group)


# What a handler returns: the answer; or None: it calls `answer`; or a coroutine that returns one of
# these.
Outcome: TypeAlias = Message | Coroutine[Any, Any, Message | None] | None
Handler: TypeAlias = Callable[[Any, Request], Outcome]
_H = TypeVar("_H", bound=Handler)

HANDLERS: Final[dict[int, Handler]] = {}


def handles(api_key: int) -> Callable[[_H], _H]:
    """Registers the function for an API. It gets the server and the request."""

    def register(handler: _H) -> _H:
        assert api_key not in HANDLERS, api_key
        HANDLERS[api_key] = handler
        return handler

    return register
