"""Query parameters, path parameters and request headers, as the OpenAPI document shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from seb_appliance import limits
from seb_appliance.addresses import NAME_PATTERN
from seb_appliance.api.encoding.answers import ALL_FORMATS, FORMATS
from seb_appliance.api.encoding.parameters import DEFAULTS
from seb_appliance.api.encoding.record_encoding import VALUE_SHAPES
from seb_appliance.formats.topic_settings import BODY_SHAPES
from seb_appliance.quantities import format_size

Json = dict[str, Any]


def _parameter(place: str, name: str, description: str, schema: Json, example: Any) -> Json:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": schema,
        **({} if example is None else {"example": example}),
    }


def query(name: str, description: str, example: Any = None, **schema: Any) -> Json:
    return _parameter("query", name, description, schema or {"type": "string"}, example)


def header(name: str, description: str, example: Any = None) -> Json:
    return _parameter("header", name, description, {"type": "string"}, example)


def format_of(formats: Mapping[str, str]) -> Json:
    text = "Media type of the answer, instead of Accept."
    return query("format", text, type="string", enum=list(formats))


_NAME: Final[Json] = {
    "type": "string",
    "pattern": f"^{NAME_PATTERN}$",
    "maxLength": limits.NAME_LENGTH_MAX,
}
# The parameters of paths, by name.
OF_PATH: Final[dict[str, Json]] = {
    "topic": _parameter("path", "topic", "Name of the topic.", _NAME, "orders.eu"),
    "entry": _parameter(
        "path",
        "entry",
        "A journal entry, as `last_entry` of a topic has it.",
        {"type": "string"},
        "1207-5e0b9c2f7a31d84610fe2b7c9d3a4582",
    ),
    "group": _parameter("path", "group", "Name of the consumer group.", _NAME, "lake.orders"),
    "queue": _parameter("path", "queue", "Name of the queue.", _NAME, "mails"),
    "offset": _parameter(
        "path",
        "offset",
        "An offset, or -N: the N-th record from the end (-1 is the newest).",
        {"type": "string", "pattern": r"^-?[0-9]{1,16}$"},
        "17",
    ),
    "api_key_id": _parameter(
        "path", "api_key_id", "Id of the API key (not its secret).", {"type": "string"}, "k3m9x2ap"
    ),
    "subscription": _parameter("path", "subscription", "Name of the subscription.", _NAME, "bots"),
    "inlet": _parameter("path", "inlet", "Name of the inlet.", _NAME, "github"),
    "secret": _parameter(
        "path", "secret", "A secret of the inlet, for the scheme `path`.", {"type": "string"}, None
    ),
    "compaction": _parameter(
        "path", "compaction", "Id of the compaction.", {"type": "string"}, "9f86d081884c7d65"
    ),
    "table": _parameter(
        "path", "table", "Name of the table's topic, or id of the table.", _NAME, "orders.eu"
    ),
    "connection": _parameter(
        "path", "connection", "Number of the connection.", {"type": "integer", "minimum": 0}, 17
    ),
    "asset": _parameter("path", "asset", "Name of the file.", {"type": "string"}, "schema.js"),
}

VALUES: Final = query(
    "values",
    "How values are written in JSON: `text` (base64 if a value is not UTF-8), `json` (parsed; "
    f"base64 if it is not JSON, or larger than {format_size(limits.JSON_SHOWN_BYTES_MAX)}), or "
    "`base64` (also for record keys and headers).",
    "text",
    type="string",
    enum=list(VALUE_SHAPES),
    default=DEFAULTS["values"],
)
RECORD_KEY: Final[list[Json]] = [
    query("key", "A record key, as percent-encoded UTF-8.", "customer-7"),
    query("key_base64", "A record key as base64, instead of `key`. It may hold any bytes."),
]
CONSUME: Final[list[Json]] = [
    query(
        "offset",
        "Where to begin: an offset, `earliest`, `latest` (the log end), `-N` (the last N), or "
        "`@time` (the first record, in offset order, with that timestamp or later).",
        "@2026-11-21T10:00:00Z",
        type="string",
        default=DEFAULTS["offset"],
    ),
    query("until", "Exclusive end: an offset or `@time`.", "1044"),
    query(
        "max_records",
        "At most so many records.",
        type="integer",
        minimum=1,
        maximum=limits.FETCH_RECORDS_MAX,
        default=limits.FETCH_RECORDS_DEFAULT,
    ),
    query(
        "max_bytes",
        "Approximate size of the answer, at most 16MiB: bytes, or with a unit such as `512KiB`. "
        "The answer has at least one record if there is one.",
        "1MiB",
    ),
    query(
        "wait",
        "How long to wait at the log end for a record, with a unit; at most 60s.",
        "30s",
        type="string",
        default=DEFAULTS["wait"],
    ),
    query(
        "topic_id",
        "The id that the topic must have (`Seb-Topic-Id` of an earlier answer), otherwise 409 "
        "`topic_replaced`. It tells a reader that the topic was deleted and created again.",
        3,
        type="integer",
        minimum=0,
    ),
    VALUES,
    format_of(FORMATS),
]
_MAX_RECORDS: Final = query(
    "max_records",
    f"Largest number of records. Default: {limits.FETCH_RECORDS_DEFAULT:,} in JSON, record "
    "batches and CloudEvents; no limit in the other formats.",
    type="integer",
    minimum=1,
    maximum=limits.FETCH_RECORDS_MAX,
)
CONSUME_OR_FOLLOW: Final[list[Json]] = [
    *(_MAX_RECORDS if known["name"] == "max_records" else known for known in CONSUME[:-1]),
    format_of(ALL_FORMATS),
    header(
        "Last-Event-ID",
        "For a live stream: the offset of the last record that the client received. The stream "
        "continues after it and ignores `offset`.",
        "1043",
    ),
    query("ticket", "A ticket from POST /v1/tickets, instead of an API key."),
    query(
        "key",
        "Only records with this record key. One request searches 16 MiB; the answer may have no "
        "records although `next_offset` has advanced.",
        "customer-7",
    ),
    query("key_base64", "Like `key`, as base64, for any bytes."),
    query(
        "view",
        "`latest`: the newest record of each record key, without tombstones, in offset order, as "
        "of `next_offset`. The topic needs a `key_index`.",
        type="string",
        enum=["latest"],
    ),
    query("cursor", "For a view: `next_cursor` of the previous page."),
    query(
        "fresh",
        "For a view: wait until the index has reached the log end.",
        type="string",
        enum=["true", "false"],
        default=DEFAULTS["fresh"],
    ),
]
TIMEOUT: Final = header(
    "Seb-Timeout", "A shorter acknowledgement timeout than the default of 30s.", "5s"
)
CONTENT_ENCODING: Final = header(
    "Content-Encoding", "`gzip` or `zstd`. Limits apply to the decompressed body.", "zstd"
)
IDEMPOTENCY_KEY: Final = header(
    "Idempotency-Key",
    "Makes a retry safe: a repeated request with the same key is not executed again and gets the "
    "first answer. Remembered for 24 hours, or until the API key has used too many keys; each "
    f"API key has its own. 1 to {limits.IDEMPOTENCY_KEY_CHARACTERS_MAX} visible ASCII characters.",
    "01JD2ZK7V9-invoice-8217",
)
SAFE_APPEND: Final[list[Json]] = [
    IDEMPOTENCY_KEY,
    header(
        "Producer-Id",
        "Name of an idempotent producer, instead of Idempotency-Key. Needs Producer-Epoch and "
        f"Producer-Seq. 1 to {limits.NAME_LENGTH_MAX} visible ASCII characters.",
        "meter-17",
    ),
    header(
        "Producer-Epoch",
        "A producer that no longer knows its last seq uses a higher epoch and starts at seq 0.",
        "0",
    ),
    header(
        "Producer-Seq",
        "Number of the producer's request to this topic: 0, 1, 2 and so on. A request with a known "
        "number is not stored again.",
        "41",
    ),
    header(
        "Producer-Checksum",
        "A number that the producer computes from the request. If one of its last "
        f"{limits.PRODUCER_SEQS_REMEMBERED} seqs is repeated with another checksum, the request "
        "is refused.",
        "2774839217",
    ),
    header("If-Match", "Append only if this is the log end offset; in quotes.", '"17"'),
    query(
        "expected_offset",
        "Like If-Match, without quotes.",
        17,
        type="integer",
        minimum=0,
        maximum=limits.OFFSET_MAX,
    ),
]
PRODUCE: Final[list[Json]] = [
    *SAFE_APPEND,
    query(
        "body",
        "How the body is read: `envelope` as the content type says; `value`: the whole body is "
        "one record; `items`: each member of a JSON array, or each document of NDJSON or of a JSON "
        "sequence, is one record, as it was sent; `lines`: each line of text that is not empty. "
        "The default is the topic's setting `body`.",
        "items",
        type="string",
        enum=list(BODY_SHAPES),
    ),
    query(
        "key",
        "With `body`: where the record key is in each value, as a JSON Pointer (RFC 6901). Text is "
        "taken as UTF-8, a number or boolean as it is written; all else is no key.",
        "/user/id",
    ),
    query("key_header", "With `body`: the request header whose value is the record key.", "X-Id"),
    query(
        "timestamp",
        "With `body`: where the timestamp is in each value, as a JSON Pointer: RFC 3339, or a Unix "
        "time in s, ms, us or ns.",
        "/time",
    ),
    query(
        "keep_headers",
        "With `body`: request headers to store with each record, separated by commas.",
        "X-GitHub-Event,X-GitHub-Delivery",
    ),
    header(
        "ce-specversion",
        "`1.0`: the body is the data of a CloudEvent in binary mode. Its other attributes are "
        "also ce- headers; `ce-id`, `ce-source` and `ce-type` are required.",
    ),
    header("Seb-Key", "Record key of a single record, percent-encoded.", "customer-7"),
    header("Seb-Timestamp", "Timestamp of a single record.", "2026-11-21T10:00:00.000123Z"),
    header(
        "Seb-Header-Name",
        "Record header `name` of a single record, percent-encoded. May occur several times with "
        "different names.",
        "checkout",
    ),
    header(
        "Seb-Deliver-At",
        "When queues hand the records out; readers get them at once. At most 366 days ahead. With "
        "record batches, `records`: each record says it in its header `seb-deliver-at-us`.",
        "2026-11-21T10:00:00Z",
    ),
    header("Seb-Delay", "The same as a duration from now; not for record batches.", "15m"),
    header(
        "traceparent",
        "W3C Trace Context; stored as the record header `traceparent` of each record, but not in "
        "record batches.",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
    TIMEOUT,
    CONTENT_ENCODING,
]
PATTERN: Final = query(
    "pattern",
    "Pattern of topic names: words joined by dots; `*` is one word, `**` zero or more.",
    "orders.*",
)
AUDIT: Final[list[Json]] = [
    query(
        "before",
        "Only actions with a smaller number: `next_before` of the previous page.",
        type="integer",
        minimum=1,
    ),
    query(
        "limit",
        "At most so many.",
        type="integer",
        minimum=1,
        maximum=limits.AUDIT_PER_PAGE_MAX,
        default=limits.AUDIT_PER_PAGE_DEFAULT,
    ),
    query("actor", "Only actions of the API key with this id.", "k3m9x2ap"),
    query("subject", "Only actions on the topic, group or API key with this name.", "orders.eu"),
]
