"""Inlets as they are asked for, stored and used."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Final, Protocol

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.plain_bodies import BodyReader
from seb_appliance.api.server.options import SecretBox
from seb_appliance.broker.ports import DocumentRow
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import BadRequestError, NotReadyError
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.protocols.inlets.settings import InletSettings, Verify
from seb_appliance.protocols.inlets.verifying import HMAC_SCHEMES, check_secret, new_secret

_SECRETS_MAX: Final = 2  # the one of now, and the previous one
KIND: Final = "inlet"  # of its documents
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
Secrets = Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1, max_length=_SECRETS_MAX)]
# How long the sender waits for an answer, in ms, as its documentation says.
_ON_THE_WAY_MS: Final = 500
_SENDER_WAITS_MS: Final = {"slack": 3_000, "github": 10_000, "shopify": 5_000}


def reader_of(settings: InletSettings) -> BodyReader:
    """Raises BadParameterError."""
    given = {name: getattr(settings, name) for name in ("body", "key", "key_header", "timestamp")}
    query = {name: value for name, value in given.items() if value is not None}
    if settings.keep_headers:
        query["keep_headers"] = ",".join(settings.keep_headers)
    reader = BodyReader.of(query, settings.body)
    assert reader is not None, settings.body
    return reader


def delivery_header_of(settings: InletSettings) -> str:
    """Lower case; "" for none."""
    known = HMAC_SCHEMES.get(settings.verify.scheme)
    return (settings.delivery_header or (known.delivery if known else "")).lower()


def timeout_ms_of(settings: InletSettings) -> int | None:
    """After which its sender is answered in any case, with 504; None: as the appliance has it."""
    waits_ms = _SENDER_WAITS_MS.get(settings.verify.scheme)
    return None if waits_ms is None or settings.answer == "admitted" else waits_ms - _ON_THE_WAY_MS


def check_settings(settings: InletSettings, linger_ms: int) -> None:
    """`linger_ms`: of the topic, unless windows are stretched: those give way to `timeout_ms_of`.
    Raises BadNameError, BadParameterError, BadRequestError."""
    check_topic_name(settings.topic)
    reader_of(settings)
    scheme = settings.verify.scheme
    if scheme in ("hmac", "token", "proxy") and settings.verify.header is None:
        raise BadRequestError(f"The scheme {scheme} needs the name of a header.")
    waits_ms = _SENDER_WAITS_MS.get(scheme)
    if waits_ms is not None and settings.answer == "stored" and linger_ms > waits_ms // 2:
        raise BadRequestError(
            f"The sender waits {waits_ms} ms, and the topic's linger is {linger_ms} ms. Set a "
            f"linger of at most {waits_ms // 2} ms, or answer = admitted."
        )


class StoredInlet(InletSettings, frozen=True, kw_only=True):
    """`secrets`: encrypted, the newest first; the second one is the previous one. `owner`: whose
    share it takes."""

    secrets: tuple[str, ...]
    owner: str = ""


class InletWanted(InletSettings, frozen=True, kw_only=True):
    """An inlet to be made or changed. `secrets`: one, or two while they are rotated. Without them,
    an inlet that exists keeps its own, and a new one gets a random one. `keep_previous`: the newest
    one of now stays valid beside the one that is given, or else a random one. `end_previous`: only
    the newest one of now stays valid."""

    secrets: Secrets | None = None
    keep_previous: bool = False
    end_previous: bool = False


_decoder: Final = msgspec.json.Decoder(StoredInlet)
_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a delivery. `detail`: for the operator; never shown to the sender."""

    at_us: int
    address: str
    status: int
    records: int
    detail: str


@dataclass(frozen=True, slots=True)
class Inlet:
    """An inlet in use. `key` stands for its grants, share and quotas, as an API key would.
    `outcomes`: the latest deliveries, in memory."""

    name: str
    settings: StoredInlet
    reader: BodyReader
    key: ApiKeyView
    outcomes: deque[Outcome] = field(
        default_factory=lambda: deque(maxlen=limits.INLET_DELIVERIES_KEPT)
    )


@lru_cache(maxsize=limits.DOCUMENTS_MAX)
def inlet_of(row: DocumentRow) -> Inlet:
    """The same object until the row changes."""
    stored = _decoder.decode(row.document)
    grant = Grant(operation="produce", topics=stored.topic)
    key = ApiKeyView(
        f"inlet:{row.name}", row.name, (grant,), row.set_us, None, quotas=stored.quotas
    )
    return Inlet(row.name, stored, reader_of(stored), key)


def secrets_of(settings: StoredInlet, box: SecretBox) -> tuple[str, ...]:
    """Decrypted. Raises NotReadyError."""
    return opened(settings.secrets, box)


@lru_cache(maxsize=2 * limits.DOCUMENTS_MAX)
def opened(sealed: tuple[str, ...], box: SecretBox) -> tuple[str, ...]:
    """Decrypted, and remembered: decrypting for each delivery would take longer than an unknown
    inlet does, and tell its name. Raises NotReadyError."""
    return tuple(map(box.open, sealed))


class Rotation(Protocol):
    """What is asked for: see `InletWanted`."""

    @property
    def secrets(self) -> tuple[str, ...] | None: ...
    @property
    def keep_previous(self) -> bool: ...
    @property
    def end_previous(self) -> bool: ...


def rotated(
    wanted: Rotation, verify: Verify, before: tuple[str, ...], box: SecretBox
) -> tuple[tuple[str, ...], str | None]:
    """The secrets from now on, encrypted, and the new one if it is random. `before`: encrypted.
    Raises BadRequestError for malformed secrets."""
    if wanted.end_previous and (wanted.keep_previous or wanted.secrets):
        raise BadRequestError("end_previous comes with neither keep_previous nor secrets.")
    kept = before[: 1 if wanted.end_previous else None]
    is_random = wanted.secrets is None and (wanted.keep_previous or not kept)
    secrets = (new_secret(verify),) if is_random else wanted.secrets or ()
    for secret in secrets:
        check_secret(verify, secret)
    if wanted.keep_previous and _begin_with(kept, secrets, box):
        return kept, None  # asked again, because nobody heard the answer
    sealed = tuple(map(box.seal, secrets))
    if wanted.keep_previous or not secrets:
        sealed = (*sealed, *kept)[:_SECRETS_MAX]
    return sealed, secrets[0] if is_random else None


def _begin_with(sealed: tuple[str, ...], secrets: tuple[str, ...], box: SecretBox) -> bool:
    try:
        return opened(sealed, box)[: len(secrets)] == secrets
    except NotReadyError:
        return False


def document_of(
    wanted: InletWanted, before: StoredInlet | None, box: SecretBox, owner: str
) -> tuple[str, str | None]:
    """JSON to be stored, and the secret if it is a random one. `owner`: of a new one. Raises
    BadRequestError for malformed secrets."""
    members = {name: getattr(wanted, name) for name in InletSettings.__struct_fields__}
    kept = () if before is None else before.secrets
    if before is not None and before.verify.scheme != wanted.verify.scheme:
        stays = kept[: 1 if wanted.end_previous else None]
        for one in stays if wanted.keep_previous or wanted.secrets is None else ():
            check_secret(wanted.verify, box.open(one))
    sealed, random = rotated(wanted, wanted.verify, kept, box)
    stored = StoredInlet(**members, secrets=sealed, owner=owner if before is None else before.owner)
    return _encoder.encode(stored).decode(), random
