"""P24: inlets. A delivery is stored once, however often its sender repeats it; a secret works until
its end was acknowledged, and an inlet until its deletion was.

An operator makes inlets, rotates their secrets and deletes them; a sender signs deliveries and
repeats each until it is answered. The routes are the product's, without a socket.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.answers import Answer
from seb_appliance.api.routes.records.produce import Produced
from seb_appliance.api.routes.route import RequestContext
from seb_appliance.api.server.parsing import Parser
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.broker import Broker
from seb_appliance.errors import NotFoundError, UnauthenticatedError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.protocols.inlets.delivering import deliver
from seb_appliance.protocols.inlets.inlets import KIND, InletWanted, inlet_of, secrets_of
from seb_appliance.protocols.inlets.managing import save
from seb_appliance.protocols.inlets.settings import Verify
from tests.simulation.clients import Failed, is_refusal
from tests.simulation.history import Call
from tests.simulation.known import Known
from tests.simulation.process import Process
from tests.simulation.world import World

_TOPIC = "orders"


class _PlainBox:
    def seal(self, secret: str) -> str:
        return f"sealed {secret}"

    def open(self, sealed: str) -> str:
        return sealed.removeprefix("sealed ")


@dataclass
class _Inlet(Known):
    """`secrets`: those that are valid, the newest first; none if it is not there."""

    name: str = ""
    secrets: tuple[str, ...] = ()


class Senders:
    def __init__(self, world: World) -> None:
        self._world = world
        self._draws = Random(world.draws.getrandbits(64))
        self._inlets = [_Inlet(name=name) for name in ("shop", "mail")]
        self._options = SimpleNamespace(
            secret_box=_PlainBox(),
            parser=Parser(),
            max_request_bytes=limits.REQUEST_BYTES_MAX,
            failpoints=NO_FAILPOINTS,
        )
        self._made = 0
        self._found: list[str] = []

    # --- the operator ---

    async def operate(self) -> None:
        """One change at a time; in place of an inlet that is unsure comes another."""
        while not self._world.over:
            await asyncio.sleep(2.5 * self._draws.random())
            at = self._draws.randrange(len(self._inlets))
            inlet = self._inlets[at]
            if inlet.unsure:
                self._made += 1
                inlet = self._inlets[at] = _Inlet(name=f"more{self._made}")
            await self._change_somehow(inlet)

    async def _change_somehow(self, inlet: _Inlet) -> None:
        newest = inlet.secrets[:1]
        secret = f"{inlet.name}-{inlet.version}-secret"
        if not newest:
            await self._put(inlet, (secret,), secrets=(secret,))
            return
        match self._draws.choice(["rotate", "rotate", "end", "replace", "delete"]):
            case "rotate":
                await self._put(inlet, (secret, *newest), secrets=(secret,), keep_previous=True)
            case "end":
                await self._put(inlet, newest, end_previous=True)
            case "replace":
                await self._put(inlet, (secret,), secrets=(secret,))
            case _:
                name = inlet.name
                await self._change(
                    inlet, (), lambda b: b.documents.remove(KIND, name, THE_APPLIANCE)
                )

    async def _put(self, inlet: _Inlet, valid: tuple[str, ...], **rotation: Any) -> None:
        wanted = InletWanted(topic=_TOPIC, verify=Verify(scheme="github"), **rotation)
        box, name = self._options.secret_box, inlet.name
        await self._change(inlet, valid, lambda b: save(b, box, name, wanted, THE_APPLIANCE))

    async def _change(
        self, inlet: _Inlet, valid: tuple[str, ...], work: Callable[[Broker], Awaitable[object]]
    ) -> None:
        """Repeated until it is answered. An attempt without an answer may come late; but what it
        asked for is what the repetition asks for."""
        inlet.changing, maybe = True, False
        while True:
            try:
                _, by = await self._world.ask(work)
            except NotFoundError:  # an earlier attempt deleted it
                inlet.unsure = True
                break
            except Failed as error:
                maybe = maybe or not is_refusal(error)
                if self._world.over or not getattr(error, "retryable", True):
                    inlet.unsure = inlet.unsure or maybe
                    inlet.changing = False
                    return
                await asyncio.sleep(0.3)
            else:
                inlet.acknowledged(by)
                break
        inlet.secrets, inlet.changing = valid, False
        self._world.note("operator", "has inlet", inlet.name, valid, inlet.unsure)
        inlet.unsure = inlet.unsure or (maybe and not valid)  # a late attempt makes it again

    # --- the sender ---

    async def send(self, who: str) -> None:
        number = 0
        while not self._world.over:
            await asyncio.sleep(1.2 * self._draws.random())
            inlet = self._draws.choice(self._inlets)
            known = [*inlet.secrets, f"{inlet.name}-{max(0, inlet.version - 2)}-secret"]
            secret = self._draws.choice([known[0], *known])
            mark = b"%s:%d" % (who.encode(), number)
            number += 1
            call = Call(_TOPIC, (mark,), self._world.loop.time())
            self._world.history.calls.append(call)
            await self._until_answered(call, inlet, secret)

    async def _until_answered(self, call: Call, inlet: _Inlet, secret: str) -> None:
        maybe = False
        while True:
            version, valid, settled = inlet.version, secret in inlet.secrets, inlet.is_settled
            try:
                told, by = await self._world.ask(
                    lambda broker: self._deliver(broker, inlet.name, secret, call.marks[0])
                )
            except Failed as error:
                maybe = maybe or not is_refusal(error)
                if self._world.over or not getattr(error, "retryable", True):
                    call.outcome = "unknown" if maybe else "refused"
                    return
                await asyncio.sleep(0.4)
                continue
            self._note(call, told, by, maybe=maybe)
            same = settled and inlet.is_settled and inlet.version == version
            if same and inlet.is_known_to(by) and valid != (told is not None):
                what = "refused" if told is None else "took"
                self._found.append(f"P24 {by.name} {what} {call.marks} with {secret}: {inlet}")
            return

    def _note(self, call: Call, told: Produced | None, by: Process, *, maybe: bool) -> None:
        self._world.note(by.name, "is delivered", call.marks, told)
        if told is None:
            call.outcome = "unknown" if maybe else "refused"
            return
        assert told.offset is not None
        call.outcome, call.answered_s = "acked", self._world.loop.time()
        call.topic_id, call.offset, call.epoch = told.topic_id, told.offset, by.epoch
        self._world.history.acked(call, by.name)

    async def _deliver(
        self, broker: Broker, name: str, secret: str, mark: bytes
    ) -> Produced | None:
        """None if it could not be verified."""
        body = mark + b" is paid"
        signature = hmac.digest(secret.encode(), body, "sha256").hex().encode()
        headers = [
            (b"content-length", b"%d" % len(body)),
            (b"x-hub-signature-256", b"sha256=" + signature),
            (b"x-github-delivery", mark),
        ]

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        scope = {"headers": headers, "client": ("192.0.2.7", 443), "state": {}}
        scope |= {"path_params": {"inlet": name}, "query_string": b""}
        services = SimpleNamespace(broker=broker, options=self._options)
        request = SimpleNamespace(scope=scope, receive=receive)
        context = RequestContext(services, request)  # type: ignore[arg-type]
        try:
            answer = await deliver(None, context)
        except UnauthenticatedError:
            return None
        assert isinstance(answer, Answer)
        return msgspec.json.decode(b"".join(answer.body), type=Produced)

    def violations(self, broker: Broker) -> Iterator[str]:
        """`broker`: of a start from the bucket alone."""
        yield from self._found
        for inlet in self._inlets:
            row = broker.documents.get(KIND, inlet.name)
            if not inlet.is_settled:
                continue
            found = (
                () if row is None else secrets_of(inlet_of(row).settings, self._options.secret_box)
            )
            if found != inlet.secrets:
                yield f"P24 the secrets are {found} in the end: {inlet}"
