"""Bad bodies and headers of a produce: the documented code, nothing stored, then a good request."""

from __future__ import annotations

import gzip
import json
import struct

import pytest
import pytest_asyncio

from seb_appliance import limits, zstd
from seb_appliance.formats import batch
from tests.http.bad_input import JSON, RECORDS, nothing_happens, refused
from tests.http.test_produce import make_batch
from tests.support.raw_http import exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

NDJSON = {"content-type": "application/x-ndjson"}
BATCH = {"content-type": "application/vnd.seb.batch"}


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def _nothing_happens(seb):
    async with nothing_happens(seb):
        yield


# --- produce: JSON ---

BAD_JSON = {
    "nothing": b"",
    "empty object": b"{}",
    "not json": b"hello",
    "truncated": b'{"records":[{"value":1}',
    "trailing": b'{"records":[{"value":1}]} x',
    "a list": b'[{"value":1}]',
    "a bare value": b'{"temp":21}',
    "records null": b'{"records":null}',
    "records an object": b'{"records":{}}',
    "no records": b'{"records":[]}',
    "a null record": b'{"records":[null]}',
    "a record without value": b'{"records":[{}]}',
    "a key without value": b'{"records":[{"key":"k"}]}',
    "both values": b'{"records":[{"value":1,"value_base64":"AA=="}]}',
    "both keys": b'{"records":[{"value":1,"key":"k","key_base64":"AA=="}]}',
    "tombstone without key": b'{"records":[{"value":null}]}',
    "unknown field": b'{"records":[{"value":1,"topic":"x"}]}',
    "unknown member": b'{"records":[{"value":1}],"expected_offset":3}',
    "key a number": b'{"records":[{"value":1,"key":7}]}',
    "headers a list": b'{"records":[{"value":1,"headers":[]}]}',
    "header a number": b'{"records":[{"value":1,"headers":{"a":1}}]}',
    "base64 without padding": b'{"records":[{"value_base64":"aGk"}]}',
    "base64 with a line end": b'{"records":[{"value_base64":"aGk=\\n"}]}',
    "base64 null": b'{"records":[{"value_base64":null}]}',
    "time without zone": b'{"records":[{"value":1,"timestamp":"2026-01-01T00:00:00"}]}',
    "time a number": b'{"records":[{"value":1,"timestamp":1700000000}]}',
    "time of year 0": b'{"records":[{"value":1,"timestamp":"0000-01-01T00:00:00Z"}]}',
    "time of year 292277026596": (
        b'{"records":[{"value":1,"timestamp":"292277026596-01-01T00:00:00Z"}]}'
    ),
    "nested 100,000 deep": b'{"records":[{"value":' + b"[" * 100_000 + b"}]}",
    "nested outside": b"[" * 100_000,
    "1e999": b'{"records":[{"value":1e999}]}',
    "-1e999 inside": b'{"records":[{"value":{"a":[-1e999]}}]}',
    "10^400": b'{"records":[{"value":1' + b"0" * 400 + b"}]}",
    "NaN": b'{"records":[{"value":NaN}]}',
    "Infinity": b'{"records":[{"value":-Infinity}]}',
    "lone surrogate": b'{"records":[{"value":"\\ud800"}]}',
    "lone surrogate inside": b'{"records":[{"value":{"a":"\\udc00x"}}]}',
    "lone surrogate in a key": b'{"records":[{"value":1,"key":"\\ud800"}]}',
    "invalid utf-8 in a value": b'{"records":[{"value":"\xff"}]}',
    "invalid utf-8 inside": b'{"records":[{"value":["\xc3("]}]}',
    "invalid utf-8 in a key": b'{"records":[{"value":1,"key":"\xff"}]}',
    "byte order mark": b'\xef\xbb\xbf{"records":[{"value":1}]}',
    "utf-16": '{"records":[{"value":1}]}'.encode("utf-16"),
    "utf-7": b"+AHsAIg-records",
    "control character": b'{"records":[{"value":"a\nb"}]}',
}


@pytest.mark.parametrize("body", BAD_JSON.values(), ids=BAD_JSON.keys())
async def test_bad_json_is_refused(seb, body):
    await refused(seb, "POST", RECORDS, 400, "bad_json", content=body, headers=JSON)


async def test_a_json_value_alone_gets_both_right_forms(seb):
    problem = await refused(
        seb, "POST", RECORDS, 400, "bad_json", content=b'{"temp":21}', headers=JSON
    )
    assert '{"records":[{"value":{"temp":21}}]}' in problem["detail"]
    assert "?body=value" in problem["detail"]
    assert problem["errors"] == [{"path": "$", "message": "Object contains unknown field `temp`"}]


async def test_an_error_names_the_record(seb):
    body = b'{"records":[{"value":1},{"value":2,"key":7}]}'
    problem = await refused(seb, "POST", RECORDS, 400, "bad_json", content=body, headers=JSON)
    assert problem["errors"][0]["path"] == "$.records[1].key"
    body = b'{"value":1}\n{"value":2}}\n'
    problem = await refused(seb, "POST", RECORDS, 400, "bad_json", content=body, headers=NDJSON)
    assert "Line 2" in problem["detail"]


@pytest.mark.parametrize(
    "body",
    [b"", b"\n\n", b"{}", b'{"value":1}{"value":2}', b'[{"value":1}]', b'{"value":1}\nx', b"\xff"],
)
async def test_bad_ndjson_is_refused(seb, body):
    await refused(seb, "POST", RECORDS, 400, "bad_json", content=body, headers=NDJSON)


# --- produce: limits ---

TOO_LARGE = {
    "a value over the topic's limit": (
        {"records": [{"value": "x" * (limits.RECORD_BYTES_DEFAULT + 1)}]},
        "record_too_large",
    ),
    "a key over 64 KiB": (
        {"records": [{"value": 1, "key": "k" * (limits.RECORD_KEY_BYTES_MAX + 1)}]},
        "record_too_large",
    ),
    "33 headers": (
        {"records": [{"value": 1, "headers": {str(i): "x" for i in range(33)}}]},
        "record_too_large",
    ),
    "headers over 16 KiB": (
        {"records": [{"value": 1, "headers": {"a": "x" * limits.RECORD_HEADERS_BYTES_MAX}}]},
        "record_too_large",
    ),
    "10,001 records": ({"records": [{"value": 1}] * 10_001}, "request_too_large"),
    "200,000 empty records": ({"records": [{}] * 200_000}, "request_too_large"),
}


@pytest.mark.parametrize(("content", "code"), TOO_LARGE.values(), ids=TOO_LARGE.keys())
async def test_what_is_over_a_limit_is_too_large(seb, content, code):
    await refused(seb, "POST", RECORDS, 413, code, json=content)
    if code == "request_too_large":
        lines = "\n".join(json.dumps(record) for record in content["records"])
        await refused(seb, "POST", RECORDS, 413, code, content=lines.encode(), headers=NDJSON)


@pytest.mark.parametrize("content_type", ["application/octet-stream", "application/json"])
async def test_a_body_over_16_mib_is_too_large(seb, content_type):
    size = limits.REQUEST_BYTES_MAX + 1
    head = {"content-type": content_type}
    await refused(seb, "POST", RECORDS, 413, "request_too_large", content=b"x" * size, headers=head)

    async def chunks():
        for _ in range(17):
            yield b"x" * limits.MIB

    await refused(seb, "POST", RECORDS, 413, "request_too_large", content=chunks(), headers=head)


async def test_a_content_length_that_is_only_a_claim_is_refused_at_once(seb):
    head = f"POST {RECORDS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {seb.admin_key}\r\n"
    answer = await exchange(seb.port, f"{head}Content-Length: {10**15}\r\n\r\n".encode())
    assert (answer.status, answer.code, answer.closed) == (413, "request_too_large", True)


# --- produce: encodings and media types ---

BOMB = b"\0" * (64 * limits.MIB)


@pytest.mark.parametrize(
    ("encoding", "body", "status", "code"),
    [
        ("gzip", gzip.compress(BOMB), 413, "request_too_large"),
        ("zstd", zstd.compress(BOMB), 413, "request_too_large"),
        ("gzip", b"plain", 400, "bad_request"),
        ("zstd", b"plain", 400, "bad_request"),
        ("gzip", b"", 400, "bad_request"),
        ("zstd", b"", 400, "bad_request"),
        ("gzip", gzip.compress(b"x" * 1000)[:-9], 400, "bad_request"),
        ("zstd", zstd.compress(b"x" * 1000)[:-3], 400, "bad_request"),
        ("gzip", gzip.compress(b"x") + b"trailing", 400, "bad_request"),
        ("gzip", gzip.compress(b"") * 100, 400, "bad_request"),
        ("br", b"x", 415, "unsupported_media_type"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x")), 415, "unsupported_media_type"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_bad_encodings_are_refused(seb, encoding, body, status, code):
    headers = {"content-encoding": encoding}
    await refused(seb, "POST", RECORDS, status, code, content=body, headers=headers)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/xml",
        "application/cloudevents+xml",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "nonsense",
        "application/vnd.apache.arrow.stream",
    ],
)
async def test_other_media_types_are_told_which_would_do(seb, content_type):
    problem = await refused(
        seb, "POST", RECORDS, 415, "unsupported_media_type",
        content=b"{}", headers={"content-type": content_type},
    )  # fmt: skip
    assert "json" in problem["detail"] or "UTF-8" in problem["detail"]


# --- produce: headers and parameters ---


@pytest.mark.parametrize(
    "headers",
    [
        {"producer-id": "p"},
        {"producer-epoch": "1"},
        {"producer-seq": "1"},
        {"seb-timeout": "0s"},
        {"seb-timeout": "5"},
        {"seb-timeout": "-5s"},
        {"seb-timeout": "31s"},
        {"seb-timeout": "soon"},
        {"seb-key": "%zz"},
        {"seb-key": "100%"},
        {"seb-timestamp": "yesterday"},
        {"seb-timestamp": "1969-12-31T23:59:59.999999Z"},
        {"seb-timestamp": "2999-01-01T00:00:00Z"},
        {"seb-header-": "x"},
        {"seb-header-%ff": "x"},
        {"seb-kye": "typo"},
    ],
    ids=str,
)
async def test_bad_headers_are_refused(seb, headers):
    await refused(seb, "POST", RECORDS, 400, "bad_parameter", content=b"x", headers=headers)


async def test_headers_of_one_record_do_not_go_with_many(seb):
    await refused(
        seb, "POST", RECORDS, 400, "bad_parameter",
        json={"records": [{"value": 1}]}, headers={"seb-key": "k"},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["seb-key", "content-type", "content-encoding", "seb-timeout"])
async def test_a_header_sent_twice_is_refused(seb, name):
    headers = [(name, "gzip"), (name, "gzip")]
    await refused(seb, "POST", RECORDS, 400, "bad_parameter", content=b"x", headers=headers)


async def test_timestamps_out_of_range_are_refused_in_every_body(seb):
    for timestamp in ("1969-12-31T23:59:59Z", "2999-01-01T00:00:00Z"):
        content = {"records": [{"value": 1}, {"value": 1, "timestamp": timestamp}]}
        await refused(seb, "POST", RECORDS, 400, "bad_parameter", json=content)
    for timestamp_us in (-1, 1 << 60):
        body = make_batch([b"x"], timestamp_us=timestamp_us)
        await refused(seb, "POST", RECORDS, 400, "bad_parameter", content=body, headers=BATCH)


# --- produce: record batches ---

GOOD = make_batch([b"a", b"b"], keys=[b"k", None])


def damaged(at: int, data: bytes) -> bytes:
    return GOOD[:at] + data + GOOD[at + len(data) :]


def rewritten(offset: int, layout: str, value: int) -> bytes:
    """GOOD with a header field changed and the header's CRC made right again."""
    from crc32c import crc32c

    body = bytearray(GOOD)
    struct.pack_into(layout, body, offset, value)
    struct.pack_into("<I", body, 64, crc32c(bytes(body[:64])))
    return bytes(body)


BAD_BATCHES = {
    "nothing": b"",
    "text": b"hello, this is not a record batch but long enough for one, or is it not? No.",
    "magic": damaged(0, b"SEB!"),
    "version": damaged(4, b"\x03"),
    "header crc": damaged(64, b"\0\0\0\0"),
    "body crc": damaged(100, b"\xff"),
    "cut in the header": GOOD[:40],
    "cut in the body": GOOD[:-8],
    "bytes after it": GOOD + b"\0" * 8,
    "version 1": b"seb!\x01\x00" + bytes(40),
    "no records": rewritten(14, "<I", 0),
    "2^32-1 records": rewritten(14, "<I", 2**32 - 1),
    "unknown flag": rewritten(18, "<H", 1 << 12),
    "stored length": rewritten(56, "<I", 2**31),
    "inflated length": rewritten(60, "<I", 2**31),
    "offsets given": rewritten(24, "<q", 5),
    "negative base offset": rewritten(24, "<q", -1),
    "smallest timestamp": rewritten(40, "<q", 1),
    "zstd flag on a plain body": rewritten(18, "<H", 1 | 256),
    "tombstone without key": make_batch([None]),
    "headers no msgpack": make_batch([b"a"], headers=[b"\xc1"]),
    "headers of text": make_batch([b"a"], headers=[b"\x81\xa1a\xa1b"]),
    "padding": make_batch([b"abc"], zstd_level=3)[:-1] + b"\1",
}


@pytest.mark.parametrize("body", BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
async def test_bad_batches_are_refused(seb, body):
    await refused(seb, "POST", RECORDS, 400, "bad_batch", content=body, headers=BATCH)


async def test_one_bad_batch_refuses_the_good_ones_before_it(seb):
    await refused(
        seb, "POST", RECORDS, 400, "bad_batch", content=GOOD + damaged(0, b"X"), headers=BATCH
    )


async def test_batches_over_a_limit_are_too_large(seb):
    bomb = make_batch([b"\0" * (17 * limits.MIB)], zstd_level=3)
    await refused(seb, "POST", RECORDS, 413, "request_too_large", content=bomb, headers=BATCH)
    many = make_batch([b""] * (limits.RECORDS_IN_BATCHES_MAX + 1))
    await refused(seb, "POST", RECORDS, 413, "request_too_large", content=many, headers=BATCH)
    for large in (
        make_batch([b"x" * (limits.RECORD_BYTES_DEFAULT + 1)]),
        make_batch([b""], keys=[b"k" * (limits.RECORD_KEY_BYTES_MAX + 1)]),
    ):
        await refused(seb, "POST", RECORDS, 413, "record_too_large", content=large, headers=BATCH)


async def test_explicit_offsets_are_the_appliances(seb):
    columns = batch.decode(GOOD).columns
    from msgspec.structs import replace

    from seb_appliance.formats.columns import int64s

    gaps = batch.encode(
        replace(columns, offsets=int64s([0, 5])), base_offset=0, created_us=0, last_offset=5
    )
    await refused(seb, "POST", RECORDS, 400, "bad_batch", content=gaps, headers=BATCH)
