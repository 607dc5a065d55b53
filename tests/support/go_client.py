"""A client of the Go broker's API, written against what that API says and nothing of ours; answers
are read by a multipart parser that is not ours, either."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import httpx2
from multipart import MultipartParser, parse_options_header

BOUNDARY = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab"
ACCEPT = {"accept": "multipart/form-data"}


def part(name: str, content: bytes, more: str = "") -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return f"--{BOUNDARY}\r\n{head}".encode() + content + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


def body_of(records: Sequence[bytes], sizes: Any = None) -> bytes:
    """`sizes`: other ones than are right."""
    given = [len(record) for record in records] if sizes is None else sizes
    return part("sizes", json.dumps(given).encode()) + part("records", b"".join(records)) + END


def content_type(boundary: str = BOUNDARY) -> dict[str, str]:
    return {"content-type": f"multipart/form-data; boundary={boundary}"}


async def add(client: httpx2.AsyncClient, topic: str, records: Sequence[bytes]) -> list[int]:
    """The offsets of the records."""
    answer = await client.post(
        "/records", params={"topic-name": topic}, content=body_of(records), headers=content_type()
    )
    assert answer.status_code == 201, answer.text
    assert answer.headers["content-type"] == "application/json"
    offsets: list[int] = answer.json()["offsets"]
    return offsets


async def get(client: httpx2.AsyncClient, topic: str, offset: int, **more: Any) -> list[bytes]:
    """The records of one answer; `more` are parameters with _ for -."""
    given = {name.replace("_", "-"): value for name, value in more.items()}
    params = {"topic-name": topic, "offset": offset, **given}
    answer = await client.get("/records", params=params, headers=ACCEPT)
    return records_of(answer)


def records_of(answer: httpx2.Response) -> list[bytes]:
    assert answer.status_code in (200, 206), answer.text
    parts = parts_of(answer)
    if answer.status_code == 206:
        assert parts == {}
        return []
    assert list(parts) == ["sizes", "records"]
    sizes, data, records = json.loads(parts["sizes"]), parts["records"], []
    for size in sizes:
        records.append(data[:size])
        data = data[size:]
    assert data == b""
    return records


def parts_of(answer: httpx2.Response) -> dict[str, bytes]:
    kind, options = parse_options_header(answer.headers["content-type"])
    assert kind == "multipart/form-data"
    if answer.content == f"--{options['boundary']}--\r\n".encode():
        return {}
    size = len(answer.content)
    parser = MultipartParser(
        BytesIO(answer.content),
        options["boundary"],
        strict=True,
        spool_limit=size,
        memory_limit=2 * size,
    )
    return {found.name: found.raw for found in parser.parts()}
