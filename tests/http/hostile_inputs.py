"""What an attacker, or a broken client, sends; and the answer that the documentation promises.

One table for tests in this process and against a real one. `fact` numbers the kind of input; those
that are no single request are tested elsewhere (`ELSEWHERE`). A `{key}` in a header or body is the
admin key.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits, zstd
from tests.http.hostile_batches import BATCHES

RECORDS: Final = "/v1/topics/target/records"
OFFSETS: Final = "/v1/groups/readers/offsets"
FACTS: Final = 86


@dataclass(frozen=True)
class Hostile:
    """`raw`: the whole request, as it is. `path` is latin-1."""

    fact: int
    name: str
    status: int
    code: str
    method: str = "GET"
    path: str = RECORDS
    headers: tuple[str, ...] = ()
    body: bytes = b""
    raw: bytes = b""
    authorization: str = "Bearer {key}"

    def request(self, key: str) -> bytes:
        if self.raw:
            return self.raw.replace(b"{key}", key.encode())
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: x", *self.headers]
        if self.authorization:
            lines.append(f"Authorization: {self.authorization}")
        named = {line.partition(":")[0].lower() for line in self.headers}
        if not named & {"content-length", "transfer-encoding"}:
            lines.append(f"Content-Length: {len(self.body)}")
        head = "\r\n".join([*lines, "", ""])
        other = "A" if key[30] != "A" else "B"
        for stand_in, given in (
            ("{key}", key),
            ("{another secret}", key[:30] + other + key[31:]),
            ("{another checksum}", key[:-6] + "AAAAAA"),
        ):
            head = head.replace(stand_in, given)
        return head.encode("latin-1") + self.body


# Inputs that are more than one request, or none: where they are tested.
ELSEWHERE: Final = {
    8: "http/test_raw_http.py::test_long_chunk_extensions_do_no_harm",
    12: "http/test_raw_http.py::test_expect_100_continue_is_answered_before_the_body",
    13: "http/test_raw_http.py::test_a_body_that_trickles_times_out_and_frees_its_reservation",
    25: "http/test_safe_bad_input.py::test_a_topic_that_is_named_twice_loses_no_record",
    56: "http/test_record_keys_gone.py::"
    "test_a_topic_is_deleted_and_made_anew_while_others_ask_and_produce",
    60: "http/test_api_keys.py::test_a_revoked_key_is_refused_at_once",
    65: "ui/test_security.py::test_a_session_is_worth_nothing_after_the_log_out",
    66: "ui/test_security.py::test_a_log_in_from_another_site_is_refused",
    67: "ui/test_security.py::"
    "test_too_many_tries_from_one_address_are_refused_before_the_password_is_checked",
    68: "ui/test_security.py::test_every_failure_has_one_answer",
    69: "ui/test_security.py::test_nothing_that_somebody_named_can_run",
    70: "ui/test_security.py::test_nothing_that_somebody_named_can_run",
    71: "ui/test_security.py::test_nothing_that_somebody_named_can_run",
    72: "ui/test_security.py::test_nothing_that_somebody_named_can_run",
    73: "ui/test_records.py::test_nothing_that_a_record_holds_runs_or_hides",
    74: "unit/cli/test_inspect.py::test_control_characters_of_a_record_do_not_reach_the_terminal",
    75: "unit/test_logs.py::test_an_exception_stays_on_its_line",
    76: "ui/test_security.py::test_nothing_that_somebody_named_can_run",
    80: "unit/formats/test_segment.py::test_an_index_that_contradicts_itself_is_refused",
    82: "unit/storage/test_start_create_only.py::test_a_damaged_entry_is_not_the_end_of_the_log",
    83: "unit/storage/test_start_claimed.py::test_a_foreign_object_among_the_claims_is_named",
    84: "unit/storage/test_object_store_s3.py::"
    "test_a_listing_with_entities_is_neither_believed_nor_taken_in",
    85: "unit/state/test_damage.py::"
    "test_what_could_act_by_itself_is_refused_before_anything_is_read",
    86: "unit/fsck/test_damaged_buckets.py::test_a_missing_segment_is_told_by_topics_and_offsets",
}

GET: Final = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
JSON: Final = ("Content-Type: application/json",)
NDJSON: Final = ("Content-Type: application/x-ndjson",)


_HEAD: Final = (
    b"POST /v1/topics/target/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
)
_CHUNKED: Final = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_BAD: Final = (400, "bad_request")
_CODING: Final = (501, "transfer_coding_unsupported")
_HUGE: Final = (431, "headers_too_large")
_HTTP: Final[tuple[tuple[int, str, tuple[int, str], bytes], ...]] = (
    (1, "a header of 4 MB", _HUGE, GET + b"X: " + b"x" * 4_000_000 + b"\r\n\r\n"),
    (1, "a URL of 20 KB", _HUGE, b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
    (1, "a method of 100 KB", _BAD, b"G" * 100_000 + b" / HTTP/1.1\r\nHost: x\r\n\r\n"),
    (2, "1,000 headers", _HUGE,
     GET + b"".join(b"X-%d: aaaaaaaaaa\r\n" % i for i in range(1000)) + b"\r\n"),
    (2, "10,000 empty headers", _HUGE, GET + b"a:\r\n" * 10_000 + b"\r\n"),
    (3, "length and chunks", _BAD,
     GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (3, "chunks and length", _BAD,
     GET + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    (3, "an unknown transfer coding", _CODING, _HEAD + b"Transfer-Encoding: gzip\r\n\r\nx"),
    (3, "chunks that are not last", _BAD, _HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\nx"),
    (4, "two lengths", _BAD, _HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
    (4, "the same length twice", _BAD, _HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx"),
    (4, "a list of lengths", _BAD, _HEAD + b"Content-Length: 1, 1\r\n\r\nx"),
    (5, "a negative length", _BAD, _HEAD + b"Content-Length: -1\r\n\r\n"),
    (5, "a length with a sign", _BAD, _HEAD + b"Content-Length: +1\r\n\r\nx"),
    (5, "a length in hexadecimal", _BAD, _HEAD + b"Content-Length: 0x1\r\n\r\nx"),
    (5, "a length of 30 digits", _BAD, _HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n"),
    (5, "a length of 5,000 zeros and a one", _BAD,
     _HEAD + b"Content-Length: " + b"0" * 5_000 + b"1\r\n\r\nx"),
    (6, "a length that is only a claim", (413, "request_too_large"),
     _HEAD + b"Content-Length: 999999999999\r\n\r\n"),
    (7, "a chunk of 2^72 bytes", _BAD, _CHUNKED + b"FFFFFFFFFFFFFFFFFF\r\nx"),
    (7, "a negative chunk", _BAD, _CHUNKED + b"-1\r\nx"),
    (7, "a chunk without a length", _BAD, _CHUNKED + b"\r\nx"),
    (7, "a chunk longer than it says", _BAD, _CHUNKED + b"1\r\nxx\r\n0\r\n\r\n"),
    (7, "chunks that end in line feeds", _BAD, _CHUNKED + b"1\nx\n0\n\n"),
    (9, "no Host", _BAD, b"GET /healthz HTTP/1.1\r\n\r\n"),
    (9, "two Hosts", _BAD, GET + b"Host: y\r\n\r\n"),
    (9, "a Host that is none", _BAD, b"GET /healthz HTTP/1.1\r\nHost: a b/c\r\n\r\n"),
    (9, "a Host that is none, to the fast lane", _BAD, _HEAD.replace(b"Host: x",
     b"Host: a b/c") + b"Content-Length: 1\r\n\r\nx"),
    (10, "bare line feeds", _BAD, b"GET /healthz HTTP/1.1\nHost: x\n\n"),
    (10, "a bare line feed in a header", _BAD, GET + b"X: a\nEvil: b\r\n\r\n"),
    (10, "a bare carriage return in a header", _BAD, GET + b"X: a\rEvil: b\r\n\r\n"),
    (11, "NUL in a header", _BAD, GET + b"X: a\0b\r\n\r\n"),
    (11, "NUL in the name of a header", _BAD, GET + b"X\0: a\r\n\r\n"),
    (11, "a control character in a header", _BAD, GET + b"X: a\x7fb\r\n\r\n"),
    (11, "a folded header", _BAD, GET + b"X: a\r\n b\r\n\r\n"),
    (11, "a space before the colon", _BAD, GET + b"X : a\r\n\r\n"),
    (11, "a header without a name", _BAD, GET + b": a\r\n\r\n"),
    (11, "a header without a colon", _BAD, GET + b"hello\r\n\r\n"),
    (14, "TRACE", (405, "method_not_allowed"), b"TRACE /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    (14, "CONNECT", _BAD, b"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n"),
    (14, "the preface of HTTP/2", _BAD, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    (14, "an unknown method", _BAD, b"BREW /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    (14, "a method in lower case", _BAD, b"get /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    (14, "TLS", _BAD, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)),
    (14, "HTTP/3.7", _BAD, b"GET /healthz HTTP/3.7\r\nHost: x\r\n\r\n"),
    (14, "HTTP/0.9", _BAD, b"GET /healthz\r\n\r\n"),
    (14, "another scheme", (404, "not_found"), b"GET ftp://x/y HTTP/1.1\r\nHost: x\r\n\r\n"),
)  # fmt: skip


def _http() -> Iterator[Hostile]:
    for fact, name, (status, code), raw in _HTTP:
        yield Hostile(fact, name, status, code, raw=raw)


def _encodings() -> Iterator[Hostile]:
    bomb = b"\0" * (64 * limits.MIB)
    gzipped = gzip.compress(b"x" * 1_000, mtime=0)
    for fact, name, encoding, body, status, code in (
        (15, "a gzip bomb", "gzip", gzip.compress(bomb, 9), 413, "request_too_large"),
        (15, "a zstd bomb", "zstd", zstd.compress(bomb), 413, "request_too_large"),
        (15, "a hundred gzip members", "gzip", gzip.compress(b"") * 100, 400, "bad_request"),
        (15, "a hundred zstd frames", "zstd", zstd.compress(b"") * 100, 400, "bad_request"),
        (
            15,
            "a zstd bomb in frames",
            "zstd",
            zstd.compress(bomb[: 2**20]) * 17,
            413,
            "request_too_large",
        ),
        (
            15,
            "a million zstd frames to be skipped",
            "zstd",
            b"\x50*M\x18\0\0\0\0" * 10**6,
            400,
            "bad_request",
        ),
        (16, "gzip that is none", "gzip", b"plain", 400, "bad_request"),
        (16, "zstd that is none", "zstd", b"plain", 400, "bad_request"),
        (16, "gzip of nothing", "gzip", b"", 400, "bad_request"),
        (16, "zlib for gzip", "gzip", b"x\x9c\x03\x00\x00\x00\x00\x01", 400, "bad_request"),
        (17, "brotli", "br", b"x", 415, "unsupported_media_type"),
        (17, "gzip twice", "gzip, gzip", gzip.compress(gzipped), 415, "unsupported_media_type"),
        (17, "deflate that is none", "deflate", b"x", 400, "bad_request"),
        (21, "gzip cut short", "gzip", gzipped[:-9], 400, "bad_request"),
        (21, "gzip with something behind it", "gzip", gzipped + b"x", 400, "bad_request"),
        (21, "zstd cut short", "zstd", zstd.compress(b"x" * 1_000)[:-3], 400, "bad_request"),
        (21, "gzip with a wrong CRC", "gzip", gzipped[:-8] + b"\0" * 8, 400, "bad_request"),
    ):
        headers = (f"Content-Encoding: {encoding}",)
        yield Hostile(fact, name, status, code, "POST", RECORDS, headers, body)
    for content_type in ("application/xml", "nonsense", "application/json; charset=utf-16", "a/b/c",
                         "multipart/form-data; boundary=x"):  # fmt: skip
        name, headers = f"Content-Type {content_type}", (f"Content-Type: {content_type}",)
        yield Hostile(19, name, 415, "unsupported_media_type", "POST", RECORDS, headers, b"{}")
    for accept in ("image/*", "*/*;q=0", "application/json;q=0", "x"):
        yield Hostile(19, f"Accept {accept}", 406, "not_acceptable", headers=(f"Accept: {accept}",))


def _record(value: bytes) -> bytes:
    return b'{"records":[{"value":' + value + b"}]}"


_BAD_JSON: Final = (
    (18, "UTF-16", _record(b"1").decode().encode("utf-16")),
    (18, "UTF-32", _record(b"1").decode().encode("utf-32")),
    (18, "UTF-7", b"+AHsAIg-records"),
    (18, "a byte order mark", b"\xef\xbb\xbf" + _record(b"1")),
    (20, "half of a surrogate pair", _record(b'"\\ud800"')),
    (20, "half of a surrogate pair inside", _record(b'{"a":"\\udc00x"}')),
    (20, "half of a surrogate pair as a record key", b'{"records":[{"value":1,"key":"\\ud800"}]}'),
    (20, "bytes that are no UTF-8", _record(b'"\xff"')),
    (20, "an overlong NUL", _record(b'"\xc0\x80"')),
    (22, "100,000 lists in each other", _record(b"[" * 100_000)),
    (22, "100,000 objects in each other", _record(b'{"a":' * 100_000)),
    (22, "100,000 lists around it", b"[" * 100_000),
    (23, "10^400", _record(b"1" + b"0" * 400)),
    (23, "1e999", _record(b"1e999")),
    (23, "-1e999 inside", _record(b'{"a":[-1e999]}')),
    (24, "NaN", _record(b"NaN")),
    (24, "Infinity", _record(b"-Infinity")),
    (24, "undefined", _record(b"undefined")),
    (26, "a record key that is a number", b'{"records":[{"value":1,"key":7}]}'),
    (26, "a header that is a number", b'{"records":[{"value":1,"headers":{"a":1}}]}'),
    (26, "a timestamp that is a number", b'{"records":[{"value":1,"timestamp":1}]}'),
    (26, "records that are an object", b'{"records":{}}'),
    (28, "null", b"null"),
    (28, "records that are null", b'{"records":null}'),
    (28, "a record that is null", b'{"records":[null]}'),
    (28, "base64 that is null", b'{"records":[{"value_base64":null}]}'),
    (28, "a tombstone without a record key", _record(b"null")),
    (29, "an unknown member", b'{"records":[{"value":1}],"x":1}'),
    (29, "an unknown member of a record", b'{"records":[{"value":1,"topic":"x"}]}'),
    (29, "a key named __proto__", b'{"records":[{"value":1,"__proto__":{}}]}'),
    (31, "no records", b'{"records":[]}'),
    (31, "nothing", b""),
    (31, "half of an object", b'{"records":[{"value":1}'),
    (31, "something behind it", _record(b"1") + b" x"),
    (31, "single quotes", b"{'records':[]}"),
    (31, "a comment", b"/* */" + _record(b"1")),
    (31, "a comma too many", b'{"records":[{"value":1},]}'),
    (32, "base64 without padding", b'{"records":[{"value_base64":"aGk"}]}'),
    (32, "base64 with a line end", b'{"records":[{"value_base64":"aGk=\\n"}]}'),
    (32, "base64 of URLs", b'{"records":[{"value_base64":"_-8="}]}'),
    (32, "value and value_base64", b'{"records":[{"value":1,"value_base64":"AA=="}]}'),
    (54, "the year 0", b'{"records":[{"value":1,"timestamp":"0000-01-01T00:00:00Z"}]}'),
    (54, "the year 292277026596",
     b'{"records":[{"value":1,"timestamp":"292277026596-01-01T00:00:00Z"}]}'),
    (54, "a time without a zone", b'{"records":[{"value":1,"timestamp":"2026-01-01T00:00:00"}]}'),
)  # fmt: skip


def _json() -> Iterator[Hostile]:
    for fact, name, body in _BAD_JSON:
        yield Hostile(fact, name, 400, "bad_json", "POST", RECORDS, JSON, body)
    for name, body in (("an empty line", b"\n"), ("two records in a line",
     b'{"value":1}{"value":2}'),
                       ("a list", b'[{"value":1}]'), ("a bad second line",
                        b'{"value":1}\nx')):  # fmt: skip
        yield Hostile(31, f"NDJSON: {name}", 400, "bad_json", "POST", RECORDS, NDJSON, body)
    large, too_many = (413, "record_too_large"), (413, "request_too_large")
    for fact, name, (status, code), body in (
        (30, "a body over 16 MiB", too_many, b"[" + b" " * limits.REQUEST_BYTES_MAX),
        (31, "a record over 1 MiB", large, _record(b'"%b"' % (b"x" * (limits.MIB + 1)))),
        (31, "10,001 records", too_many,
         b'{"records":[' + b'{"value":1},' * 10_000 + b'{"value":1}]}'),
        (31, "200,000 empty records", too_many, b'{"records":[' + b"{}," * 199_999 + b"{}]}"),
        (55, "a record key over 64 KiB", large,
         b'{"records":[{"value":1,"key":"%b"}]}' % (b"k" * 65_537)),
        (55, "33 headers", large, b'{"records":[{"value":1,"headers":{%b}}]}'
         % b",".join(b'"%d":""' % i for i in range(33))),
        (55, "headers over 16 KiB", large,
         b'{"records":[{"value":1,"headers":{"a":"%b"}}]}' % (b"x" * 16_384)),
    ):  # fmt: skip
        yield Hostile(fact, name, status, code, "POST", RECORDS, JSON, body)
    for name, time in (
        ("before 1970", "1969-12-31T23:59:59Z"),
        ("two days ahead", "2999-01-01T00:00:00Z"),
    ):
        body = b'{"records":[{"value":1,"timestamp":"%b"}]}' % time.encode()
        yield Hostile(54, f"a time {name}", 400, "bad_parameter", "POST", RECORDS, JSON, body)


def _names() -> Iterator[Hostile]:
    for fact, name in (
        (33, ".."), (33, "a..b"), (34, "%2e%2e%2f"), (34, "a%2Fb"), (35, "..%5c"), (36, "%00"),
        (36, "a%00b"), (37, "%0d%0aSet-Cookie:x"), (38, "%ff%fe"), (38, "%61"), (39, ""), (39, "."),
        (40, "a" * 129), (40, "a" * 8_000), (41, "$(id)"), (41, ";drop%20table"), (41, "a|b"),
        (41, "a`id`"), (42, "caf%C3%A9"), (42, "cafe%CC%81"), (42, "%D0%B0"), (42, "%F0%9F%98%80"),
        (44, "__sys*em"), (45, "a."), (45, "a%20"), (45, ".a"),
    ):  # fmt: skip
        path = f"/v1/topics/{name}/records"
        yield Hostile(
            fact, f"the topic {name[:20]!r} ({len(name)})", 400, "bad_name", "POST", path, body=b"x"
        )
    for fact, path, status, code in (
        (33, "/v1/topics/../../etc/passwd", 400, "bad_name"),
        (33, "/schema/assets/../../app.py", 404, "not_found"),
        (34, "/schema/assets/..%2f..%2fapp.py", 404, "not_found"),
        (34, "/schema/assets/%2e%2e/%2e%2e/app.py", 404, "not_found"),
        (41, "/v1/topics/-rf", 404, "topic_not_found"),
        (41, "/v1/topics/CON", 404, "topic_not_found"),
        (43, "/v1/topics/TARGET", 404, "topic_not_found"),
        (44, "/v1/topics/__system", 404, "topic_not_found"),
        (44, "/v1/topics/snap/x", 404, "not_found"),
        (45, "/v1/topics/target/", 404, "not_found"),
        (45, "/v1//topics", 404, "not_found"),
        (45, "/%76%31/topics", 404, "not_found"),
    ):
        yield Hostile(fact, f"the path {path}", status, code, path=path)


def _reads() -> Iterator[Hostile]:
    for fact, query in (
        (27, "offset=9007199254740992"), (27, "offset=9223372036854775808"),
        (27, "offset=18446744073709551616"), (27, "offset=" + "9" * 5_000), (46, "offset=-0"),
        (46, "offset=-9007199254740992"), (46, "until=-1"), (26, "offset=1.0"), (26, "offset=%2B1"),
        (26, "offset=0x10"), (26, "offset=1e3"), (26, "offset=%D9%A1"), (26, "offset="),
        (26, "offset=1&offset=2"), (50, "max_records=0"), (50, "max_records=-1"),
        (50, "max_records=1000000000"), (50, "max_bytes=0"), (50, "max_bytes=17MiB"),
        (50, "max_bytes=1.5MiB"), (51, "wait=1000000000s"), (51, "wait=-1s"), (51, "wait=30"),
        (51, "wait=" + "9" * 5_000 + "s"), (54, "offset=@0000-01-01T00:00:00Z"),
        (54, "offset=@292277026596-01-01T00:00:00Z"), (54, "offset=@yesterday"), (29, "x=1"),
        (38, "offset=%ff"), (29, "&".join(f"a{i}=1" for i in range(100))), (36, "values=%00"),
    ):  # fmt: skip
        yield Hostile(fact, f"?{query[:30]}", 400, "bad_parameter", path=f"{RECORDS}?{query}")
    for fact, offset, status, code in (
        (47, "offset=9999", 416, "offset_out_of_range"),
        (47, "offset=9007199254740991", 416, "offset_out_of_range"),
        (47, "offset=9999&wait=30s", 416, "offset_out_of_range"),
    ):
        yield Hostile(fact, f"?{offset}", status, code, path=f"{RECORDS}?{offset}")
    for fact, name, status, code, offsets in (
        (46, "a negative offset", 400, "bad_json", b'{"target":-1}'),
        (48, "an offset beyond the end", 400, "commit_beyond_end", b'{"target":9999}'),
        (48, "an offset before the committed one", 409, "commit_backward", b'{"target":0}'),
        (27, "2^53", 400, "bad_json", b'{"target":9007199254740992}'),
        (27, "2^64", 400, "bad_json", b'{"target":18446744073709551616}'),
        (26, "1.5", 400, "bad_json", b'{"target":1.5}'),
        (26, "text for a number", 400, "bad_json", b'{"target":"1"}'),
        (26, "true for a number", 400, "bad_json", b'{"target":true}'),
        (31, "nothing", 400, "bad_json", b"{}"),
        (39, "a bad topic", 400, "bad_name", b'{"a..b":1}'),
        (49, "a missing topic", 404, "topic_not_found", b'{"nobody":1}'),
    ):
        body = b'{"offsets":' + offsets + b"}"
        yield Hostile(fact, f"commit {name}", status, code, "PUT", OFFSETS, JSON, body)
    yield Hostile(49, "a reset of no group", 404, "group_not_found", "POST",
     "/v1/groups/none/reset",
                  JSON, b'{"to":0}')  # fmt: skip


def _retries() -> Iterator[Hostile]:
    def numbered(epoch: str, seq: str) -> tuple[str, ...]:
        return ("Producer-Id: p", f"Producer-Epoch: {epoch}", f"Producer-Seq: {seq}")

    for fact, name, status, code, headers in (
        (52, "a seq that leaves a gap", 409, "sequence_gap", numbered("0", "7")),
        (52, "a seq that wraps", 400, "bad_parameter", numbered("0", str(2**53))),
        (52, "a negative seq", 400, "bad_parameter", numbered("0", "-1")),
        (52, "a seq of 5,000 digits", 400, "bad_parameter", numbered("0", "9" * 5_000)),
        (52, "an epoch in words", 400, "bad_parameter", numbered("one", "0")),
        (52, "a producer without a seq", 400, "bad_parameter", ("Producer-Id: p",)),
        (53, "an Idempotency-Key that is known", 422, "idempotency_mismatch",
         ("Idempotency-Key: known",)),
        (53, "an Idempotency-Key of 256 characters", 400, "bad_parameter",
         (f"Idempotency-Key: {'k' * 256}",)),
        (53, "an empty Idempotency-Key", 400, "bad_parameter", ("Idempotency-Key: ",)),
        (53, "two Idempotency-Keys", 400, "bad_parameter", ("Idempotency-Key: a",
         "Idempotency-Key: b")),
        (52, "another position", 412, "precondition_failed", ('If-Match: "9999"',)),
        (52, "a position that is none", 400, "bad_parameter", ("If-Match: x",)),
        (52, "a weak position", 400, "bad_parameter", ('If-Match: W/"1"',)),
        (51, "a time-out of years", 400, "bad_parameter", ("Seb-Timeout: 99999999h",)),
        (51, "a time-out of nothing", 400, "bad_parameter", ("Seb-Timeout: 0s",)),
        (29, "an unknown Seb- header", 400, "bad_parameter", ("Seb-Kye: typo",)),
        (38, "a record key that is not encoded", 400, "bad_parameter", ("Seb-Key: %zz",)),
        (38, "a header's name that is no UTF-8", 400, "bad_parameter", ("Seb-Header-%ff: x",)),
        (54, "a timestamp in words", 400, "bad_parameter", ("Seb-Timestamp: yesterday",)),
        (55, "a record key of 15 KB, twice", 400, "bad_parameter", ("Seb-Key: a",
         "Seb-Key: " + "k" * 7_000)),
        (2, "more headers than there may be", 431, "headers_too_large",
         tuple(f"Seb-Header-{i}: {'x' * 40}" for i in range(400))),
    ):  # fmt: skip
        yield Hostile(fact, name, status, code, "POST", RECORDS, headers, b"other bytes")


def _keys() -> Iterator[Hostile]:
    for fact, name, authorization in (
        (57, "no API key", ""), (57, "nothing", " "), (57, "Bearer alone", "Bearer"),
        (57, "Digest", "Digest x"), (57, "Basic alone", "Basic"), (57, "Basic without base64",
         "Basic !!!"),
        (57, "Basic beyond ASCII", "Basic \xe9"), (57, "Bearer beyond ASCII", "Bearer \xe9\xff"),
        (57, "Basic with NUL", "Basic dToA"), (57, "the key alone", "{key}"),
        (58, "one character too many", "Bearer {key}x"), (58, "two keys", "Bearer {key} {key}"),
        (58, "half of it", "Bearer seb_abcdefgh"), (59, "a checksum that is wrong",
         "Bearer {another checksum}"),
        (58, "a secret that is wrong", "Bearer {another secret}"), (64, "a token of 15 KB",
         "Bearer " + "s" * 15_000),
    ):  # fmt: skip
        yield Hostile(fact, name, 401, "unauthenticated", authorization=authorization)
    twice = ("Authorization: Bearer {key}",)
    yield Hostile(61, "two API keys", 401, "unauthenticated", headers=twice)
    yield Hostile(61, "two API keys for an append", 401, "unauthenticated", "POST", headers=twice)
    yield Hostile(
        62, "the API key in the URL", 400, "bad_parameter", path=f"{RECORDS}?key_id={{key}}"
    )
    yield Hostile(
        64, "a token of 1 MB", 431, "headers_too_large", authorization="Bearer " + "s" * 10**6
    )
    for pattern in ("", "a..b", "#", "a*", "*a", "***", "a/../b", "a" * 129, "a,b", "\\u0000"):
        grants = (
            f'{{"name":"n","grants":[{{"operation":"produce","topics":"{pattern}"}}]}}'.encode()
        )
        name = f"a grant on {pattern[:10]!r}"
        yield Hostile(63, name, 400, "bad_parameter", "POST", "/v1/api-keys", JSON, grants)
    for name, body in (
        ("no grants", b'{"name":"n","grants":[]}'),
        ("101 grants",
         b'{"name":"n","grants":[' + b'{"operation":"produce"},' * 100
          + b'{"operation":"produce"}]}'),
        ("an unknown operation", b'{"name":"n","grants":[{"operation":"root"}]}'),
        ("a hash of one's own",
         b'{"name":"n","grants":[{"operation":"admin"}],"secret_sha256":"00"}'),
        ("a name of 201 characters",
         b'{"name":"%b","grants":[{"operation":"admin"}]}' % (b"n" * 201)),
    ):  # fmt: skip
        yield Hostile(
            63, f"an API key with {name}", 400, "bad_json", "POST", "/v1/api-keys", JSON, body
        )
    yield Hostile(64, "settings over 256 KiB", 413, "request_too_large", "PUT", "/v1/topics/new",
     JSON,
                  b" " * (limits.MANAGE_BYTES_MAX + 1))  # fmt: skip


def _batches() -> Iterator[Hostile]:
    headers = ("Content-Type: application/vnd.seb.batch",)
    for fact, name, body, status, code in BATCHES:
        yield Hostile(fact, f"a batch: {name}", status, code, "POST", RECORDS, headers, body)


ROWS: Final = (
    *_http(), *_encodings(), *_json(), *_names(), *_reads(), *_retries(), *_keys(), *_batches(),
)  # fmt: skip
