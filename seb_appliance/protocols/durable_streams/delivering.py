"""All subscriptions of Durable Streams at an appliance that writes: a task for each, and changes.

A wake for a webhook is signed with Ed25519. The private key is a document, encrypted with the key
of the machine. A machine without that key makes a new one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from itertools import count
from typing import ClassVar, Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from seb_appliance import __version__, limits
from seb_appliance.api.encoding.answers import JSON
from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.api.server.options import SecretBox
from seb_appliance.broker.access.audit import THE_APPLIANCE, Actor
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.errors import BadRequestError, GroupNotFoundError, NotReadyError
from seb_appliance.protocols.durable_streams import limits as stream_limits
from seb_appliance.protocols.durable_streams.subscriptions import (
    KIND,
    Links,
    StoredSubscription,
    StreamSubscriptionIn,
    Subscription,
    Tokens,
    Tools,
    Wake,
    group_of,
    patterns_of,
    pending_out,
    topic_at,
)
from seb_appliance.protocols.subscriptions.addresses import Target
from seb_appliance.protocols.subscriptions.sending import DeliveryError, Sender
from seb_appliance.tasks import Background, Job

_KEY_KIND: Final = "stream_signing_key"  # of the document of the private key
_KEY_NAME: Final = "ed25519"
# Of one run of the appliance. A run begins with an entry of the journal, so that generations of a
# later run are greater.
_GENERATIONS: Final = 1 << 20
_TIMEOUT_S: Final = 30.0  # of a request to a webhook, at most
_SUCCESS: Final = range(200, 300)
_decoder: Final = msgspec.json.Decoder(StoredSubscription)
_encoder: Final = msgspec.json.Encoder()


class _Answer(msgspec.Struct):
    """Of a webhook."""

    done: bool = False


_answer_decoder: Final = msgspec.json.Decoder(_Answer)


class Signer(Protocol):
    """An Ed25519 key pair."""

    @property
    def public(self) -> bytes: ...

    def sign(self, data: bytes) -> bytes: ...


class StreamSubscriptions(Job):
    name: ClassVar[str] = "stream subscriptions"

    def __init__(
        self,
        broker: Broker,
        box: SecretBox,
        sender: Sender,
        seq: int,
        random_bytes: Callable[[int], bytes],
        signer_of: Callable[[bytes], Signer],
    ) -> None:
        """`seq`: of the last journal entry when the appliance started. `signer_of`: the key pair of
        32 random bytes."""
        self._broker = broker
        self._box = box
        self._sender = sender
        self._random_bytes = random_bytes
        self._signer_of = signer_of
        generations = count(seq * _GENERATIONS + 1)
        self._tools = Tools(
            broker,
            self._deliver,
            generations.__next__,
            random_bytes,
            random.random,
            Counter(),
            broker.shares.declare(
                "stream_topics", stream_limits.TOPICS_MAX, "topics of subscriptions of streams"
            ),
        )
        self._all: dict[str, tuple[Subscription, Background]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._signer: Signer | None = None

    @cached_property
    def tokens(self) -> Tokens:
        """Of wakes, with a key of this run of the appliance."""
        return Tokens(self._random_bytes(32))

    async def _run(self) -> None:
        for row in self._broker.documents.of_kind(KIND):
            if row.name not in self._all:
                self._begin(row.name, _decoder.decode(row.document))

    async def stop(self) -> None:
        await self.close()
        for name in list(self._all):
            await self._end(name)

    def find(self, name: str) -> Subscription | None:
        found = self._all.get(name)
        return None if found is None else found[0]

    def _begin(self, name: str, stored: StoredSubscription) -> Subscription:
        made = Subscription(name, stored, self._tools)
        task = Background(f"stream subscription {name}", self._broker.clock, is_essential=False)
        self._all[name] = made, task
        task.begin(made.run)
        return made

    async def _end(self, name: str) -> None:
        found, task = self._all.pop(name)
        found.close()
        await task.close()

    # --- changes ---

    def _turn(self, name: str) -> asyncio.Lock:
        """Of changes of this one; those of others do not wait for it."""
        return self._turns.setdefault(name, asyncio.Lock())

    async def create(
        self, name: str, wanted: StreamSubscriptionIn, base: str, by: Actor
    ) -> tuple[Subscription, bool]:
        """It, and whether it is new. Streams that exist are linked at their end. Raises
        BadRequestError, BadNameError, BadParameterError, and what a commit raises."""
        await self._check(wanted)
        async with self._turn(name):
            known = self.find(name)
            if known is not None:
                return known, False
            stored = StoredSubscription(
                settings=wanted,
                streams=tuple(dict.fromkeys(map(topic_at, wanted.streams))),
                base=base,
                created_us=self._broker.clock.wall_us(),
                owner=by.owner,
            )
            await self._link(name, Links.of(stored).cover, by)
            await self._store(name, stored, by)
            return self._begin(name, stored), True

    def check_url(self, url: str) -> None:
        """An address, and a URL without TLS, must be in `push_networks`. A name is looked up when
        a request is sent. Raises BadRequestError."""
        target = Target.of(url)
        if self._sender.is_listed(target.host):
            return
        if not target.secure:
            raise BadRequestError("webhook.url must begin with https://.")
        if self._sender.is_forbidden(target.host):
            raise BadRequestError(f"{target.host} is neither public nor in push_networks.")

    async def _check(self, wanted: StreamSubscriptionIn) -> None:
        if wanted.pattern is None and not wanted.streams:
            raise BadRequestError("Send pattern, streams, or both.")
        if wanted.type == "pull-wake" and wanted.wake_stream is None:
            raise BadRequestError("A subscription of the type pull-wake needs wake_stream.")
        if wanted.type == "webhook":
            if wanted.webhook is None:
                raise BadRequestError("A subscription of the type webhook needs webhook.url.")
            await self.signer()

    async def change_streams(
        self,
        found: Subscription,
        by: Actor,
        *,
        link: Collection[str] = (),
        unlink: Collection[str] = (),
    ) -> None:
        """Topics that are linked one by one from now on, at their end, or no more. Raises
        BadRequestError for too many, and what a commit raises."""
        async with self._turn(found.name):
            before = found.stored.streams
            streams = tuple(dict.fromkeys(n for n in (*before, *link) if n not in unlink))
            if len(streams) > max(limits.FOLLOWED_TOPICS_MAX, len(before)):
                raise BadRequestError(
                    f"Streams are linked one by one to a subscription up to "
                    f"{limits.FOLLOWED_TOPICS_MAX}; use a pattern, or a second subscription."
                )
            added = set(streams) - set(before)
            patterns = patterns_of(found.stored.settings)
            # What the pattern matches is linked already, and keeps its cursor.
            await self._link(found.name, lambda n: n in added and not patterns.cover(n), by)
            stored = msgspec.structs.replace(found.stored, streams=streams)
            await self._store(found.name, stored, by)
            await found.change(stored)

    async def delete(self, found: Subscription, by: Actor) -> None:
        """Raises NotFoundError."""
        async with self._turn(found.name):
            await self._broker.documents.remove(KIND, found.name, by)
            await self._end(found.name)
            with contextlib.suppress(GroupNotFoundError):
                await self._broker.groups.delete(group_of(found.name), by)

    async def _link(self, name: str, wants: Callable[[str], bool], by: Actor) -> None:
        """Commit the ends of the topics that exist. Raises BadParameterError for too many."""
        with await self._broker.follow_many(wants, by.owner) as follower:
            ends = {topic.name: topic.log_end_offset for topic in follower.topics.values()}
        if ends:
            commit = Commit(group_of(name), ends, allow_backward=True, heeds_lease=False)
            await self._broker.groups.commit(commit, self._broker.pending.reserve(by.owner, 0), by)

    async def _store(self, name: str, stored: StoredSubscription, by: Actor) -> None:
        document = _encoder.encode(stored).decode()
        shown = msgspec.to_builtins(stored)
        await self._broker.documents.put(KIND, name, document, by, shown)

    # --- webhooks ---

    async def signer(self) -> Signer:
        """Made when it is first needed. Raises ConfigurationError if it cannot be encrypted, and
        what storing it raises."""
        if self._signer is None:
            seed = self._stored_seed()
            if seed is None:
                seed = self._random_bytes(32)
                sealed = self._box.seal(base64.b64encode(seed).decode())
                document = msgspec.json.encode({"seed": sealed}).decode()
                documents = self._broker.documents
                await documents.put(_KEY_KIND, _KEY_NAME, document, THE_APPLIANCE, {})
            self._signer = self._signer_of(seed)
        return self._signer

    def _stored_seed(self) -> bytes | None:
        """None if there is none, or if it was encrypted on another machine."""
        row = self._broker.documents.get(_KEY_KIND, _KEY_NAME)
        if row is None:
            return None
        with contextlib.suppress(NotReadyError):
            return base64.b64decode(self._box.open(msgspec.json.decode(row.document)["seed"]))
        return None

    async def public_keys(self) -> list[dict[str, str]]:
        """As a JSON Web Key Set; none before the first webhook. Raises as `signer`."""
        if self._signer is None and self._stored_seed() is None:
            return []
        return [await self.public_key()]

    async def public_key(self) -> dict[str, str]:
        """As a JSON Web Key; `kid` is made of the key. Raises as `signer`."""
        public = (await self.signer()).public
        kid = f"ds_{hashlib.sha256(public).hexdigest()[:16]}"
        key = {"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA"}
        return {**key, "kid": kid, "x": _base64url(public)}

    async def _deliver(self, found: Subscription, wake: Wake) -> bool:
        """Post the wake; whether its worker is done. Raises DeliveryError if it did not get it."""
        settings, base = found.stored.settings, found.stored.base
        assert settings.webhook is not None, found.name
        body = _encoder.encode(
            {
                "subscription_id": found.name,
                "wake_id": wake.wake_id,
                "generation": wake.generation,
                "streams": list(map(pending_out, wake.links)),
                "callback_url": f"{base}__ds/subscriptions/{found.name}/callback",
                "callback_token": self.tokens.of(found.name, wake),
            }
        )
        at_s = self._broker.clock.wall_us() // 1_000_000
        signature = (await self.signer()).sign(b"%d.%b" % (at_s, body))
        kid = (await self.public_key())["kid"]
        head = (
            f"User-Agent: Seb-Appliance/{__version__}\r\nContent-Type: {JSON.decode()}\r\n"
            f"Webhook-Signature: t={at_s},kid={kid},ed25519={_base64url(signature)}\r\n"
        ).encode()
        timeout_s = min(_TIMEOUT_S, settings.lease_ttl_ms / 1_000)
        target = Target.of(settings.webhook.url)
        with self._broker.pending.reserve(OPERATOR, len(body)):
            answered = await self._sender.post(
                target, head, body, timeout_s, owner=found.stored.owner
            )
        if answered.status not in _SUCCESS:
            raise DeliveryError(f"the webhook answered {answered.status}")
        return is_done(answered.body)

    # --- metrics ---

    def samples(self) -> Iterator[Sample]:
        text = "Wakes of subscriptions of streams, by what became of them."
        for outcome in ("told", "failed"):
            labels = {"outcome": outcome}
            count = self._tools.counts[outcome]
            yield Sample("seb_stream_wakes_total", text, "counter", count, labels)
        failing = sum(1 for found, _ in self._all.values() if found.failures)
        for state, number in (("active", len(self._all) - failing), ("failing", failing)):
            text = "Subscriptions of streams, by state."
            yield Sample("seb_stream_subscriptions", text, "gauge", number, {"state": state})


def is_done(answer: bytes | bytearray) -> bool:
    """Whether a webhook has done the work; it may answer anything."""
    try:
        return _answer_decoder.decode(answer).done
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
