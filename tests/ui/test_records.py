"""The pages of records: what is shown, from where, and that nothing a record holds can run."""

from __future__ import annotations

import base64
import re

import msgspec
import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.ui.page_context import link
from tests.support.appliance import RunningAppliance
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOSTILE = [
    b"<script>alert(1)</script>",
    b"\"'><img src=x onerror=alert(1)>",
    b"a\0b",
    "x\u202egnp.exe\u2066\u200f".encode(),
    b"\xff\xfe<script>",
    b'{"a":"</pre><script>alert(1)</script>","b":[1,2]}',
    b"{{ 7 * 7 }}",
    b"[" * 100_000,
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(seb: RunningAppliance) -> RunningAppliance:
    await produce(seb, "numbers", [{"value": f"value {n}"} for n in range(100)])
    hostile = [
        {
            "value_base64": b64(one),
            "key_base64": b64(one[:100]),
            "headers": {"<b>": "<i>\u202e"},
        }
        for one in HOSTILE
    ]
    await produce(seb, "hostile", hostile)
    return seb


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def produce(seb: RunningAppliance, topic: str, records: list[dict[str, object]]) -> None:
    lines = msgspec.json.Encoder().encode_lines(records)
    kind = {"content-type": "application/x-ndjson"}
    answer = await seb.client.post(f"/v1/topics/{topic}/records", content=lines, headers=kind)
    assert answer.status_code == 201, answer.text


def way(text: str, words: str) -> str:
    """The path of a link; "" if there is none."""
    found = re.search(rf'<a href="([^"]*)"[^>]*>{words}<', text)
    return found[1].replace("&amp;", "&") if found else ""


def offsets(text: str) -> list[int]:
    return [
        int(found) for found in re.findall(r'<th scope="row" class="number"><a[^>]*/(\d+)"', text)
    ]


async def test_nothing_is_read_before_go(seb: RunningAppliance, olga: Visitor) -> None:
    before = seb.appliance.broker.counters.reads
    text = (await olga.get("/ui/topics/numbers/records")).text
    assert "Press Search to read records" in text
    assert seb.appliance.broker.counters.reads == before
    assert offsets(text) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("start=end", range(99, 74, -1)),
        ("start=end&at=49", range(49, 24, -1)),
        ("start=end&to=2001-01-01T00:00", []),
        ("start=end&last=15m", range(99, 74, -1)),
        ("start=end&text=value+1", [*range(19, 9, -1), 1]),
        ("start=earliest&most=50", range(50)),
        ("start=earliest&at=90", range(90, 100)),
        ("start=earliest&at=100", []),
        ("start=earliest&from=2001-01-01T00:00", range(25)),
        ("start=earliest&from=2999-01-01T00:00:00Z", []),
        ("start=earliest&text=value+7", [7, *range(70, 80)]),
        ("start=end&key=none", []),
    ],
)
async def test_records_are_shown_from_a_place(
    olga: Visitor, query: str, expected: list[int]
) -> None:
    answer = await olga.get(f"/ui/topics/numbers/records?{query}")
    assert answer.status_code == 200
    assert offsets(answer.text) == list(expected)


@pytest.mark.parametrize(
    "query",
    ["start=earliest&at=x", "start=earliest&at=101", "start=end&from=soon", "start=middle",
     "start=end&most=7", "start=end&show=png", "start=end&at=-1", "start=end&last=2h"],
)  # fmt: skip
async def test_a_place_that_is_none_is_told_in_words(olga: Visitor, query: str) -> None:
    answer = await olga.get(f"/ui/topics/numbers/records?{query}")
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text


async def test_later_and_earlier_go_through_all_records(olga: Visitor) -> None:
    path, seen = "/ui/topics/numbers/records?start=earliest", []
    while path:
        text = (await olga.get(path)).text
        seen += offsets(text)
        path = way(text, "Later")
    assert seen == list(range(100))
    assert offsets((await olga.get(way(text, "Earlier"))).text) == list(range(50, 75))


async def test_a_look_for_a_text_says_how_far_it_went_and_goes_on(
    olga: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seb_appliance.ui.records.searching._STEP_RECORDS", 10)
    monkeypatch.setattr(limits, "SCANNED_RECORDS_MAX", 30)
    text = (await olga.get("/ui/topics/numbers/records?start=earliest&text=value+47")).text
    assert "Searched 30 records" in text
    assert "offsets 0 to 29; 0 fit" in text
    assert offsets((await olga.get(way(text, "Search on"))).text) == [47]


async def test_the_newest_are_searched_backwards_and_further_back_goes_on(
    olga: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seb_appliance.ui.records.searching._STEP_RECORDS", 10)
    monkeypatch.setattr(limits, "SCANNED_RECORDS_MAX", 30)
    text = (await olga.get("/ui/topics/numbers/records?start=end&text=value+7")).text
    assert "Searched 100 records" not in text
    seen = offsets(text)
    while path := way(text, "Search further back"):
        text = (await olga.get(path)).text
        seen += offsets(text)
    assert seen == [*range(79, 69, -1), 7]
    assert "Reached the start of the log" in text


async def test_older_and_newest_go_through_all_records(olga: Visitor) -> None:
    path, seen = "/ui/topics/numbers/records?start=end", []
    while path:
        text = (await olga.get(path)).text
        seen += offsets(text)
        path = way(text, "Older")
    assert seen == list(range(99, -1, -1))
    assert offsets((await olga.get(way(text, "Newest"))).text) == list(range(99, 74, -1))


async def test_large_records_are_shown_as_far_as_they_fit_and_the_page_says_so(
    seb: RunningAppliance, olga: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCANNED_BYTES_MAX", 200_000)
    await seb.client.put("/v1/topics/huge", json={"compression": "none"})
    for _ in range(6):
        await produce(seb, "huge", [{"value": "x" * 300_000}])
    ways = (("earliest", "Later", range(6)), ("end", "Older", range(5, -1, -1)))
    for begin, on, expected in ways:
        path, seen, said = f"/ui/topics/huge/records?start={begin}", [], []
        while path:
            text = (await olga.get(path)).text
            seen += offsets(text)
            said.append("The records are large" in text)
            path = way(text, on)
        assert seen == list(expected)
        assert said[0]
        assert len(said) > 1


async def test_a_json_value_is_compared_and_becomes_columns(
    seb: RunningAppliance, olga: Visitor
) -> None:
    values = [f'{{"total": {50 * n}, "customer": {{"name": "c{n}"}}}}' for n in range(5)]
    await produce(seb, "bills", [{"value": value} for value in [*values, "no JSON"]])
    for where, expected in (
        ("$.total > 100", [3, 4]),
        ("total = 50", [1]),
        ("customer.name ~ 4", [4]),
        ("$.customer", [0, 1, 2, 3, 4]),
    ):
        path = link("/ui/topics/bills/records", start="earliest", where=where)
        assert offsets((await olga.get(path)).text) == expected, where
    text = (await olga.get("/ui/topics/bills/records?start=earliest&columns=customer.name")).text
    assert re.findall(r'<td class="cell">(.*?)</td>', text) == ["c0", "c1", "c2", "c3", "c4", ""]
    for bad in ("where=$.total+is+3", "where=[[", "columns=a+b"):
        answer = await olga.get(f"/ui/topics/bills/records?start=earliest&{bad}")
        assert (answer.status_code, 'role="alert"' in answer.text) == (422, True), bad


async def test_members_of_the_values_that_are_shown_are_offered_as_columns(
    seb: RunningAppliance, olga: Visitor
) -> None:
    value = '{"id": 1, "at": {"city": "Zug", "deep": {"er": {"est": 1}}}, "<b>": 2, "b\u202ec": 3}'
    await produce(seb, "members", [{"value": value}, {"value": '{"id": 2, "tags": []}'}])
    text = (await olga.get("/ui/topics/members/records?start=end&columns=id")).text
    assert re.findall(r'aria-label="([^"]*) the column ([^"]*)"', text) == [
        ("Remove", "id"),
        ("Add", "tags"),
        ("Add", "at.city"),
        ("Add", "at.deep.er"),
    ]
    text = (await olga.get(way(text, r"\+ at.city"))).text
    assert re.findall(r'<td class="cell">(.*?)</td>', text) == ["2", "", "1", "Zug"]
    text = (await olga.get(way(text, "\u2212 id"))).text
    assert re.findall(r'<td class="cell">(.*?)</td>', text) == ["", "Zug"]


async def test_records_between_two_times_are_searched_and_downloaded(
    seb: RunningAppliance, olga: Visitor
) -> None:
    hours = [f"2026-03-01T{n:02}:00:00Z" for n in range(24)]
    await produce(seb, "hours", [{"value": at, "timestamp": at} for at in hours])
    between = "from=2026-03-01T05:00:00&to=2026-03-01T08:00"
    for order, expected in (("end", [7, 6, 5]), ("earliest", [5, 6, 7])):
        text = (await olga.get(f"/ui/topics/hours/records?start={order}&{between}")).text
        assert offsets(text) == expected
        assert "further" not in text
        assert not way(text, "Older")
        assert not way(text, "Later")
        assert 'name="offset" value="5"' in text
        assert 'name="end" value="8"' in text
    text = (await olga.get(f"/ui/topics/hours/records?start=end&at=6&{between}")).text
    assert offsets(text) == [6, 5]
    assert 'name="from" type="datetime-local" step="1" value="2026-03-01T05:00:00"' in text
    last = (await olga.get("/ui/topics/hours/records?start=end&last=1h")).text
    assert offsets(last) == []
    assert "There are no records in this range" in last


async def test_a_header_and_a_record_key_are_looked_for(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await produce(
        seb,
        "kinds",
        [
            {"value": "a", "key": "k/1", "headers": {"kind": "order", "by": "x"}},
            {"value": "b", "key": "k/2", "headers": {"kind": "refund"}},
            {"value": "c"},
        ],
    )
    for query, expected in (
        ("start=earliest&header=kind", [0, 1]),
        ("start=earliest&header=kind%3Dref", [1]),
        ("start=earliest&header=ref", []),
        ("start=end&key=k/2", [1]),
        ("start=earliest&text=k/", [0, 1]),
    ):
        text = (await olga.get(f"/ui/topics/kinds/records?{query}")).text
        assert offsets(text) == expected, query


async def test_nothing_that_a_record_holds_runs_or_hides(olga: Visitor) -> None:
    for show in ("json", "text", "hex"):
        pages = [f"/ui/topics/hostile/records?start=earliest&show={show}"]
        pages += [f"/ui/topics/hostile/records/{n}?show={show}" for n in range(len(HOSTILE))]
        for path in pages:
            answer = await olga.get(path)
            assert answer.status_code == 200, path
            assert "<script>alert" not in answer.text
            assert "<img" not in answer.text
            assert "<i>" not in answer.text
            assert not set("\0\u202e\u2066\u200f") & set(answer.text)
    text = (await olga.get("/ui/topics/hostile/records?start=earliest")).text
    for words in ("a\\x00b", "x\\u202egnp.exe\\u2066\\u200f", "0xfffe3c", "{{ 7 * 7 }}"):
        assert words in text
    assert "&lt;b&gt;" in text
    assert "&#34;b&#34;: [\n" in text  # pretty JSON
    query = "?start=end&key=%3Cscript%3E&text=%22%3E%3Cimg+src%3Dx%3E&header=%3Cscript%3E"
    text = (await olga.get(f"/ui/topics/hostile/records{query}")).text
    assert "<script>" not in text.replace("<script src=", "")
    assert "<img" not in text


async def test_a_list_stays_small_however_large_the_values(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await produce(seb, "large", [{"value": "x" * 30_000} for _ in range(25)])
    answer = await olga.get("/ui/topics/large/records?start=end")
    assert len(answer.content) < 100_000
    assert "show all" in answer.text
    whole = (await olga.get("/ui/topics/large/records/3")).text
    assert "x" * 30_000 in whole


async def test_one_record_has_a_page_of_its_own(olga: Visitor) -> None:
    text = (await olga.get("/ui/topics/numbers/records/7")).text
    assert '<pre tabindex="0" data-kind="text">value 7</pre>' in text
    assert "/records/6?show=json" in text
    assert "/records/8?show=json" in text
    assert "Later" not in (await olga.get("/ui/topics/numbers/records/99")).text
    for missing in (
        "numbers/records/100",
        "numbers/records/9007199254740993",
        "none/records/0",
        "numbers/records/x",
    ):
        answer = await olga.get(f"/ui/topics/{missing}")
        assert (answer.status_code, "<h1>" in answer.text) == (404, True)


async def test_a_download_is_what_the_api_gives(seb: RunningAppliance, olga: Visitor) -> None:
    for topic, records in (("numbers", 100), ("hostile", len(HOSTILE))):
        answer = await olga.get(f"/ui/topics/{topic}/download?offset=0&most=1000")
        asked = {"format": "ndjson", "offset": "0"}
        told = await seb.client.get(f"/v1/topics/{topic}/records", params=asked)
        assert answer.content == told.content
        assert answer.content.count(b"\n") == records
        assert "attachment" in answer.headers["content-disposition"]
    keyed = await olga.get("/ui/topics/kinds/download?key=k/2")
    assert keyed.content.count(b"\n") == 1
    few = await olga.get("/ui/topics/numbers/download?offset=90&most=3")
    assert few.content.count(b"\n") == 3
    asked = "offset=10&end=90&text=value+7&format=CSV"
    lines = (await olga.get(f"/ui/topics/numbers/download?{asked}")).text.splitlines()
    assert lines[0] == "offset,timestamp,key,value,headers"
    assert [line.split(",")[3] for line in lines[1:]] == [f"value {n}" for n in range(70, 80)]
    asked = "offset=0&most=4&text=value+7&where=$"
    assert (await olga.get(f"/ui/topics/numbers/download?{asked}")).content == b""
    columns = "offset=0&most=2&format=CSV&columns=total,customer.name"
    lines = (await olga.get(f"/ui/topics/bills/download?{columns}")).text.splitlines()
    assert [line.rsplit(",", 2)[1:] for line in lines] == [
        ["total", "customer.name"],
        ["0", "c0"],
        ["50", "c1"],
    ]
    assert (await olga.get("/ui/topics/numbers/download?offset=x")).status_code == 400
    assert (await olga.get("/ui/topics/numbers/download?offset=999")).status_code == 416


async def test_no_command_to_copy_holds_what_an_address_smuggled_in(olga: Visitor) -> None:
    evil = "%3Brm+-rf"
    for path in (
        f"topics?filter=*{evil}",
        f"topics/numbers/records?start=end&most=25{evil}",
        f"topics/numbers/send?offset=1&to=numbers{evil}",
        f"topics/numbers/settings?linger_ms=1s{evil}",
        f"topics/numbers/trim?before=1{evil}",
    ):
        text = (await olga.get(f"/ui/{path}")).text
        commands = text[text.index('<details class="same">') :]
        assert "rm -rf" not in commands, path
        assert "seb " in commands
