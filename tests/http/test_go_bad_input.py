"""Bad requests to the Go broker's API: refused in plain text, nothing stored, then a good one."""

from __future__ import annotations

import gzip
import json

import pytest
import pytest_asyncio

from seb_appliance import limits
from tests.http.bad_input import nothing_happens
from tests.support.go_client import ACCEPT, BOUNDARY, END, body_of, content_type, get, part
from tests.support.raw_http import exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIZES, RECORDS = part("sizes", b"[2]"), part("records", b"ab")
GOOD = SIZES + RECORDS + END
TARGET = "/records?topic-name=target"


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def _nothing_happens(seb):
    async with nothing_happens(seb):
        yield
        assert await get(seb.client, "target", 0, timeout="0") == []


def sized(sizes: bytes, records: bytes = b"ab") -> bytes:
    return part("sizes", sizes) + part("records", records) + END


def disposed(disposition: bytes, more: bytes = b"") -> bytes:
    head = b"--%b\r\nContent-Disposition: %b\r\n%b\r\n" % (BOUNDARY.encode(), disposition, more)
    return head + b"[2]\r\n" + RECORDS + END


BAD_BODIES = {
    "nothing": b"",
    "no multipart": b"ab",
    "only the end": END,
    "only sizes": SIZES + END,
    "only records": RECORDS + END,
    "records first": RECORDS + SIZES + END,
    "sizes twice": SIZES + SIZES + END,
    "sizes, records, sizes": SIZES + RECORDS + SIZES + END,
    "sizes, records, records": SIZES + RECORDS + RECORDS + END,
    "another part between": SIZES + part("other", b"x") + RECORDS + END,
    "another part first": part("other", b"x") + SIZES + RECORDS + END,
    "100 parts": SIZES * 100 + RECORDS + END,
    "another name": part("size", b"[2]") + RECORDS + END,
    "names in upper case": part("SIZES", b"[2]") + RECORDS + END,
    "a name with a line end": disposed(b'form-data; name="sizes\r\n"'),
    "no name": disposed(b"form-data"),
    "an empty name": disposed(b'form-data; name=""'),
    "two names": disposed(b'form-data; name="sizes"; name="records"'),
    "an encoded name": disposed(b"form-data; name*=utf-8''sizes"),
    "an attachment": disposed(b'attachment; name="sizes"'),
    "an open quote": disposed(b'form-data; name="sizes'),
    "something behind the name": disposed(b'form-data; name="sizes" x'),
    "two dispositions": disposed(
        b'form-data; name="sizes"', b'Content-Disposition: form-data; name="records"\r\n'
    ),
    "base64": disposed(b'form-data; name="sizes"', b"Content-Transfer-Encoding: base64\r\n"),
    "a header without a colon": disposed(b'form-data; name="sizes"', b"hello\r\n"),
    "a bare line feed in a header": disposed(b'form-data; name="sizes"\nX: y'),
    "a header of 1 MB": disposed(b'form-data; name="sizes"', b"X: %b\r\n" % (b"x" * 2**20)),
    "headers without an end": b"--%b\r\n" % BOUNDARY.encode() + b"X: y\r\n" * 10_000,
    "no headers": b"--%b\r\n\r\n[2]\r\n" % BOUNDARY.encode() + RECORDS + END,
    "line feeds alone": GOOD.replace(b"\r\n", b"\n"),
    "a preamble": b"hello\r\n" + GOOD,
    "an empty line first": b"\r\n" + GOOD,
    "an epilogue": GOOD + b"hello",
    "another body behind": GOOD + GOOD,
    "no end": SIZES + RECORDS,
    "cut in the end": GOOD[:-3],
    "cut in the records": GOOD[: -len(END) - 3],
    "spaces behind the boundary": GOOD.replace(b"ab\r\n", b"ab \r\n"),
    "the boundary in the records": sized(b"[70]", b"x\r\n--" + BOUNDARY.encode() + b"y" * 5),
    "sizes of nothing": sized(b""),
    "no sizes": sized(b"[]"),
    "no sizes and no records": sized(b"[]", b""),
    "sizes null": sized(b"null"),
    "sizes a number": sized(b"2"),
    "sizes an object": sized(b'{"0":2}'),
    "sizes of text": sized(b'["2"]'),
    "sizes of null": sized(b"[2,null]"),
    "a negative size": sized(b"[3,-1]"),
    "a fraction": sized(b"[2.5]"),
    "a size of 2^32": sized(b"[4294967296]"),
    "a size of 2^64": sized(b"[18446744073709551616]"),
    "sizes that overflow to the right sum": sized(b"[4294967295,3]"),
    "sizes that are too small": sized(b"[1]"),
    "sizes that are too large": sized(b"[3]"),
    "one size too many": sized(b"[2,1]"),
    "sizes followed by something": sized(b"[2] x"),
    "sizes nested deep": sized(b"[" * 100_000),
    "sizes in utf-16": sized("[2]".encode("utf-16")),
    "sizes of NaN": sized(b"[NaN]"),
}


async def refused(seb, method, path, status, **request):
    answer = await seb.client.request(method, path, **request)
    assert answer.status_code == status, (answer.status_code, answer.text)
    return answer.text


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
async def test_a_broken_body_is_refused(seb, body):
    await refused(seb, "POST", TARGET, 400, content=body, headers=content_type())


TOO_MUCH = {
    "too many records": body_of([b""] * (limits.RECORDS_PER_REQUEST_MAX + 1)),
    "a megabyte of sizes": sized(b"[" + b" " * 2**20 + b"2]"),
    "too large a record": body_of([b"x" * (limits.RECORD_BYTES_DEFAULT + 1)]),
    "a good record beside it": body_of([b"ab", b"x" * (limits.RECORD_BYTES_DEFAULT + 1)]),
    "too large a request": sized(b"[2]", b"x" * limits.REQUEST_BYTES_MAX),
}


@pytest.mark.parametrize("body", TOO_MUCH.values(), ids=TOO_MUCH.keys())
async def test_too_much_is_refused(seb, body):
    await refused(seb, "POST", TARGET, 413, content=body, headers=content_type())


BAD_TYPES = {
    "none": None,
    "json": "application/json",
    "another multipart": f"multipart/mixed; boundary={BOUNDARY}",
    "a longer name": f"multipart/form-data2; boundary={BOUNDARY}",
    "no boundary": "multipart/form-data",
    "an empty boundary": "multipart/form-data; boundary=",
    "an empty quoted boundary": 'multipart/form-data; boundary=""',
    "another boundary": "multipart/form-data; boundary=other",
    "half of the boundary": f"multipart/form-data; boundary={BOUNDARY[:30]}",
    "a long boundary": f"multipart/form-data; boundary={'x' * 71}",
    "a boundary of other characters": 'multipart/form-data; boundary="a;b"',
    "a boundary that ends in a space": 'multipart/form-data; boundary="a "',
    "two boundaries": f"multipart/form-data; boundary={BOUNDARY}; boundary=x",
    "an open quote": f'multipart/form-data; boundary="{BOUNDARY}',
}


@pytest.mark.parametrize("kind", BAD_TYPES.values(), ids=BAD_TYPES.keys())
async def test_a_bad_content_type_is_refused(seb, kind):
    headers = {} if kind is None else {"content-type": kind}
    await refused(seb, "POST", TARGET, 400, content=GOOD, headers=headers)


BAD_NAMES = [
    "", "..", "a..b", "target/", "/target", "./target", "target//x", "a/b", "target%00",
    "target%20", "caf%C3%A9", "t%D0%B0rget", "%ff", "a" * 129, "target&topic-name=target",
    "target+", "target%0A",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_what_is_no_name_or_a_second_spelling_of_one_is_refused(seb, name):
    for method, path in (
        ("POST", "/records?"),
        ("GET", "/records?offset=0&timeout=0&"),
        ("GET", "/record?offset=0&"),
        ("GET", "/topic?"),
    ):
        body = {"content": GOOD, "headers": content_type()} if method == "POST" else {}
        await refused(seb, method, f"{path}topic-name={name}", 400, **body)


@pytest.mark.parametrize(
    "query",
    [
        "offset", "offset=", "offset=-1", "offset=x", "offset=1.0", "offset=18446744073709551616",
        "offset=latest", "offset=%D9%A1", "offset=0&offset=1", "offset=0&unknown=1", "x=1",
        "offset=0&max-records=-1", "offset=0&max-records=", "offset=0&max-records=x",
        "offset=0&max-bytes=-1", "offset=0&max-bytes=1KiB", "offset=0&timeout=",
        "offset=0&timeout=10",
        "offset=0&timeout=-1s", "offset=0&timeout=1d", "offset=0&timeout=1s2", "offset=0&timeout=s",
        "offset=0&timeout=.s", "offset=0&timeout=1e3s", "offset=0&timeout=" + "1s" * 100,
        "offset=0&topic_name=target",
    ],
)  # fmt: skip
async def test_a_bad_parameter_is_refused(seb, query):
    await refused(seb, "GET", f"/records?topic-name=target&{query}", 400, headers=ACCEPT)


@pytest.mark.parametrize(
    "path", ["/records", "/record?topic-name=target", "/topic", "/topic?topic="]
)
async def test_a_missing_parameter_is_refused(seb, path):
    await refused(seb, "GET", path, 400, headers=ACCEPT)


@pytest.mark.parametrize("accept", ["application/json", "text/*", "multipart/form-data;q=0", ""])
async def test_a_reader_says_that_it_takes_multipart(seb, accept):
    path = "/records?topic-name=target&offset=0"
    told = await refused(seb, "GET", path, 406, headers={"accept": accept})
    assert "multipart/form-data" in told
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {seb.admin_key}\r\n\r\n"
    assert (await exchange(seb.port, head.encode())).status == 406


async def test_what_cannot_be_promised_is_refused(seb):
    for header in ({"idempotency-key": "a"}, {"seb-key": "a"}, {"if-match": '"0"'}):
        headers = content_type() | header
        await refused(seb, "POST", TARGET, 400, content=GOOD, headers=headers)


async def test_a_compressed_body_is_as_bounded_as_a_plain_one(seb):
    for body, status in ((gzip.compress(sized(b"[2]", b"x" * 2**25)), 413), (b"x", 400)):
        headers = content_type() | {"content-encoding": "gzip"}
        await refused(seb, "POST", TARGET, status, content=body, headers=headers)


async def test_a_method_that_is_not_there_says_which_is(seb):
    answer = await seb.client.put(TARGET, content=GOOD, headers=content_type())
    assert (answer.status_code, json.loads(answer.text)["code"]) == (405, "method_not_allowed")
