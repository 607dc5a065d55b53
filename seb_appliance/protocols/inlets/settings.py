"""The settings of an inlet, each declared in one place.

The HTTP API, `seb inlets`, the file of `seb apply` and the form of the admin page are made from
these structs. docs/INLETS.md describes each.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from seb_appliance import limits
from seb_appliance.formats.api_key_members import Quotas
from seb_appliance.formats.declared import Declared, declared

PlainShape = Literal["value", "items", "lines"]
Algorithm = Literal["sha1", "sha256", "sha512"]
Encoding = Literal["hex", "base64"]
Scheme = Literal[
    "github", "meta", "shopify", "slack", "stripe", "standard", "svix",
    "hmac", "token", "basic", "path", "proxy",
]  # fmt: skip
_HEADER_NAME: Final = msgspec.Meta(pattern=r"^[A-Za-z0-9-]{1,100}$")
_SHORT: Final = msgspec.Meta(max_length=100)


class Verify(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How deliveries are verified. `header`, `algorithm`, `encoding` and `prefix` are for `hmac`;
    `header` and `prefix` also for `token` (a secret in a header) and `proxy` (a header that only a
    trusted proxy may send, such as the name in a client certificate); `user` is for `basic`.
    `tolerance_s`: how old or new a signed timestamp may be."""

    scheme: Annotated[
        Scheme, Declared("choice", "How the sender proves itself", "How the sender proves itself.")
    ]
    header: Annotated[
        Annotated[str, _HEADER_NAME] | None,
        Declared(
            "text",
            "Header of the signature or secret (hmac, token, proxy)",
            "Header of the signature or the secret (hmac, token, proxy).",
        ),
    ] = None
    algorithm: Annotated[
        Algorithm, Declared("choice", "Algorithm (hmac)", "Of hmac.", default="sha256")
    ] = "sha256"
    encoding: Annotated[
        Encoding, Declared("choice", "Encoding (hmac)", "Of hmac.", default="hex")
    ] = "hex"
    prefix: Annotated[
        str,
        _SHORT,
        Declared(
            "text",
            "Text before it (hmac, token, proxy)",
            "Text before the signature or the secret (hmac, token, proxy).",
            default="",
        ),
    ] = ""
    user: Annotated[
        str, _SHORT, Declared("text", "User name (basic)", "User name (basic).", default="")
    ] = ""
    tolerance_s: Annotated[
        int,
        msgspec.Meta(ge=1, le=limits.SIGNATURE_AGE_S_MAX),
        Declared(
            "number",
            "Seconds that a signed time may be from now",
            "How far a signed time may be from now. [300]",
            (1, limits.SIGNATURE_AGE_S_MAX),
            300,
        ),
    ] = 300


class InletSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """What an inlet does. `body`, `key`, `key_header`, `timestamp` and `keep_headers` as in a
    produce request. `delivery_header`: the request header that identifies a delivery, or
    `delivery`: a JSON Pointer to its id; such a delivery is stored once. `answer`: `stored` answers
    when the bucket has the records, `admitted` before that."""

    topic: Annotated[str, Declared("text", "Topic", "Where the records go.")]
    verify: Verify
    body: Annotated[
        PlainShape,
        Declared(
            "choice",
            "A record is: the body, each item of it, or each line",
            "How a body becomes records. [value]",
            default="value",
        ),
    ] = "value"
    key: Annotated[
        str | None,
        Declared(
            "text",
            "JSON Pointer to the record key, such as /user/id",
            "JSON Pointer to the record key, such as /user/id.",
        ),
    ] = None
    key_header: Annotated[
        str | None,
        Declared(
            "text", "Request header with the record key", "Request header with the record key."
        ),
    ] = None
    timestamp: Annotated[
        str | None,
        Declared("text", "JSON Pointer to the time", "JSON Pointer to the time of a record."),
    ] = None
    keep_headers: Annotated[
        tuple[str, ...],
        Declared(
            "names",
            "Request headers to store, separated by commas",
            "Request headers to store, separated by commas.",
        ),
    ] = ()
    delivery_header: Annotated[
        str | None,
        Declared(
            "text",
            "Header that identifies a delivery (empty: as the scheme has it)",
            "Request header that identifies a delivery, unless the scheme has one.",
        ),
    ] = None
    delivery: Annotated[
        str | None,
        Declared(
            "text", "JSON Pointer to the id of a delivery", "JSON Pointer to the id of a delivery."
        ),
    ] = None
    answer: Annotated[
        Literal["stored", "admitted"],
        Declared(
            "choice",
            "Answer when the records are stored, or admitted",
            "Answer when the bucket has the records, or before. [stored]",
            default="stored",
        ),
    ] = "stored"
    quotas: Quotas = Quotas()
    description: Annotated[
        str,
        msgspec.Meta(max_length=limits.API_KEY_DESCRIPTION_LENGTH_MAX),
        Declared("text", "Description", "What it is for.", default=""),
    ] = ""


SETTINGS: Final = declared(InletSettings)
VERIFY: Final = declared(Verify)
