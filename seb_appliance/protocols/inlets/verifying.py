"""How a sender proves that a delivery is its own: signatures over the raw body, or a secret.

Each HMAC scheme is one row of `HMAC_SCHEMES`; the source of the rule is the sender's documentation.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.errors import BadRequestError, UnauthenticatedError
from seb_appliance.protocols.inlets.settings import Algorithm, Encoding, Verify

Headers = Mapping[bytes, bytes]
_SECRET_BYTES: Final = 32
_CHOSEN_BY_SENDER: Final = frozenset({"meta", "proxy", "shopify", "slack", "stripe"})
_PATH_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{16,200}")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a sender sent. `secret`: the last part of the path; `by_proxy`: a trusted proxy passed
    it on."""

    body: bytes
    headers: Headers
    secret: str
    by_proxy: bool


@dataclass(frozen=True, slots=True)
class _Signed:
    """Signatures that a request carries, and the bytes that they are over. `at_s`: the timestamp
    that is signed, if the scheme has one."""

    signatures: Sequence[bytes]
    content: bytes
    at_s: bytes | None = None


@dataclass(frozen=True, slots=True)
class _HmacScheme:
    """`read` finds the signatures. `secret` makes the key from the secret as the sender shows it.
    `delivery`: the header that names a delivery, "" for none."""

    read: Callable[[Delivery], _Signed]
    delivery: str = ""
    algorithm: Algorithm = "sha256"
    encoding: Encoding = "hex"
    key_of: Callable[[str], bytes] = str.encode


def _one(header: bytes, prefix: bytes = b"") -> Callable[[Delivery], _Signed]:
    """One signature of the body, in one header."""

    def read(sent: Delivery) -> _Signed:
        given = sent.headers.get(header, b"").strip()
        signatures = [given.removeprefix(prefix)] if given.startswith(prefix) and given else []
        return _Signed(signatures, sent.body)

    return read


def _slack(sent: Delivery) -> _Signed:
    at_s = sent.headers.get(b"x-slack-request-timestamp", b"")
    return _Signed(
        _one(b"x-slack-signature", b"v0=")(sent).signatures, b"v0:%b:%b" % (at_s, sent.body), at_s
    )


def _stripe(sent: Delivery) -> _Signed:
    parts = [
        part.partition(b"=") for part in sent.headers.get(b"stripe-signature", b"").split(b",")
    ]
    at_s = next((value for name, _, value in parts if name.strip() == b"t"), b"")
    signatures = [value for name, _, value in parts if name.strip() == b"v1"]
    return _Signed(signatures, b"%b.%b" % (at_s, sent.body), at_s)


def _standard(start: bytes) -> Callable[[Delivery], _Signed]:
    """Standard Webhooks: `v1,<base64>` separated by spaces, over id, timestamp and body."""

    def read(sent: Delivery) -> _Signed:
        named, at_s = (sent.headers.get(start + one, b"") for one in (b"id", b"timestamp"))
        given = sent.headers.get(start + b"signature", b"").split()
        signatures = [one.removeprefix(b"v1,") for one in given if one.startswith(b"v1,")]
        return _Signed(signatures, b"%b.%b.%b" % (named, at_s, sent.body), at_s)

    return read


def _standard_key(secret: str) -> bytes:
    """Raises BadRequestError. The libraries of senders take base64 without its padding, too."""
    text = secret.removeprefix("whsec_")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise BadRequestError("The secret is whsec_ followed by base64.") from error
    if not key:
        raise BadRequestError("The secret is whsec_ followed by base64: anyone has an empty one.")
    return key


HMAC_SCHEMES: Final[Mapping[str, _HmacScheme]] = {
    "github": _HmacScheme(_one(b"x-hub-signature-256", b"sha256="), "X-GitHub-Delivery"),
    "meta": _HmacScheme(_one(b"x-hub-signature-256", b"sha256=")),
    "shopify": _HmacScheme(
        _one(b"x-shopify-hmac-sha256"), "X-Shopify-Webhook-Id", encoding="base64"
    ),
    "slack": _HmacScheme(_slack),
    "stripe": _HmacScheme(_stripe),
    "standard": _HmacScheme(
        _standard(b"webhook-"), "webhook-id", encoding="base64", key_of=_standard_key
    ),
    "svix": _HmacScheme(_standard(b"svix-"), "svix-id", encoding="base64", key_of=_standard_key),
}


STANDARD: Final = Verify(scheme="standard")


def sign_standard(secrets: Sequence[str], name: str, at_s: int, body: bytes) -> list[bytes]:
    """One signature of Standard Webhooks for each secret."""
    scheme, content = HMAC_SCHEMES["standard"], b"%b.%d.%b" % (name.encode(), at_s, body)
    digests = [hmac.digest(scheme.key_of(one), content, scheme.algorithm) for one in secrets]
    return [b"v1," + base64.b64encode(digest) for digest in digests]


def _hmac_scheme(verify: Verify) -> _HmacScheme:
    if verify.scheme != "hmac":
        return HMAC_SCHEMES[verify.scheme]
    assert verify.header is not None
    read = _one(verify.header.lower().encode(), verify.prefix.encode())
    return _HmacScheme(read, "", verify.algorithm, verify.encoding)


def new_secret(verify: Verify, random_bytes: Callable[[int], bytes] = os.urandom) -> str:
    """A random one, as the scheme has it. Raises BadRequestError for a sender that chooses it."""
    if verify.scheme in _CHOSEN_BY_SENDER:
        raise BadRequestError(
            f"With {verify.scheme} the sender chooses the secret: send it in secrets."
        )
    drawn = random_bytes(_SECRET_BYTES)
    if verify.scheme in ("standard", "svix"):
        return "whsec_" + base64.b64encode(drawn).decode()
    return base64.urlsafe_b64encode(drawn).decode().rstrip("=")


def check_secret(verify: Verify, secret: str) -> None:
    """Raises BadRequestError for a secret that cannot be one of the scheme."""
    if verify.scheme == "path" and not _PATH_SECRET.fullmatch(secret):
        raise BadRequestError("A secret in a path has 16 to 200 letters, digits, - and _.")
    if verify.scheme in HMAC_SCHEMES:
        HMAC_SCHEMES[verify.scheme].key_of(secret)


def check(verify: Verify, secrets: Sequence[str], sent: Delivery, now_s: float) -> None:
    """Takes as long whichever secret fits. A refusal takes as long as that of an inlet that does
    not exist: every scheme hashes the body. Raises UnauthenticatedError."""
    if verify.scheme not in HMAC_SCHEMES and verify.scheme != "hmac":
        hash_for_nobody(sent.body)
    match verify.scheme:
        case "basic":
            given = _basic(sent.headers.get(b"authorization", b""))
            proofs = [f"{verify.user}:{secret}".encode() for secret in secrets]
        case "path":
            given, proofs = sent.secret.encode(), [secret.encode() for secret in secrets]
        case "token" | "proxy":
            assert verify.header is not None
            given = sent.headers.get(verify.header.lower().encode(), b"")
            proofs = [(verify.prefix + secret).encode() for secret in secrets]
            if verify.scheme == "proxy" and not sent.by_proxy:
                raise refused("the request did not come through a trusted proxy")
        case _:
            _check_hmac(verify, secrets, sent, now_s)
            return
    fits = [hmac.compare_digest(given, proof) for proof in proofs]  # all of them, always
    if not any(fits):
        raise refused("the secret is missing or wrong")


def hash_for_nobody(body: bytes) -> None:
    """Only takes the time."""
    hmac.digest(b"none", body, "sha256")


def refused(why: str) -> UnauthenticatedError:
    """The same error for every reason, so that it tells a stranger nothing; `why` is for the
    operator."""
    error = UnauthenticatedError("The delivery could not be verified.")
    error.__cause__ = ValueError(why)
    return error


def _check_hmac(verify: Verify, secrets: Sequence[str], sent: Delivery, now_s: float) -> None:
    scheme = _hmac_scheme(verify)
    signed = scheme.read(sent)
    digests = [
        hmac.digest(scheme.key_of(secret), signed.content, scheme.algorithm) for secret in secrets
    ]
    if signed.at_s is not None:
        if not (signed.at_s.isdigit() and len(signed.at_s) <= 12):
            raise refused("the signed timestamp is missing or not a number")
        if abs(now_s - int(signed.at_s)) > verify.tolerance_s:
            raise refused(f"the signed timestamp is more than {verify.tolerance_s} s from now")
    if not 1 <= len(signed.signatures) <= limits.SIGNATURES_MAX:
        raise refused("there is no signature, or too many")
    given = [_decoded(one, scheme.encoding) for one in signed.signatures]
    fits = [hmac.compare_digest(one, digest) for one in given for digest in digests]
    if not any(fits):
        raise refused("the signature does not fit the body and the secret")


def _decoded(signature: bytes, encoding: Encoding) -> bytes:
    """b"" for what is not encoded so: it fits no digest."""
    try:
        if encoding == "hex":
            return binascii.unhexlify(signature)
        return base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _basic(authorization: bytes) -> bytes:
    scheme, _, given = authorization.partition(b" ")
    if scheme.lower() != b"basic":
        return b""
    return _decoded(given.strip(), "base64")
