"""`seb produce` and `seb consume`"""

from __future__ import annotations

import json

import pytest

from seb_appliance.cli.commands import records
from seb_appliance.cli.errors import OutputError
from seb_appliance.client import Admin, Producer
from seb_appliance.client.leasing import Commits

EVERY_BYTE = bytes(byte for byte in range(256) if byte != 0x0A)


@pytest.fixture
def topic(seb, request):
    """A topic of the test's own."""
    name = request.node.name.replace("[", "-").replace("]", "")[:100]
    seb.good("topics", "create", name)
    return name


def values(seb, *arguments: str) -> list[str]:
    return seb.good("consume", *arguments).out.splitlines()


def test_lines_come_back_as_they_went_in(seb, topic):
    lines = [b"hello", b"", b'{"temp":21}', b"\r", "grüße".encode(), EVERY_BYTE, b"last"]
    told = seb.good("produce", topic, stdin=b"\n".join(lines))
    assert told.err == "7 records acknowledged, the last at offset 6\n"
    assert told.raw == b""
    assert seb.good("consume", topic).raw == b"\n".join(lines) + b"\n"


def test_lines_may_come_from_a_file(seb, topic):
    path = seb.folder / "lines"
    path.write_text("one\ntwo\n")
    seb.good("produce", topic, "--file", str(path))
    assert values(seb, topic) == ["one", "two"]
    assert "cannot read" in seb.refused("produce", topic, "--file", str(seb.folder / "none"))


def test_a_record_key_goes_with_every_line(seb, topic):
    seb.good("produce", topic, "--key", "käse", stdin=b"1\n\xff\n")
    records = [json.loads(line) for line in seb.good("consume", topic, "--json").out.splitlines()]
    assert [record["key"] for record in records] == ["käse", "käse"]
    assert [record["value"] for record in records] == ["1", None]


def test_record_objects_are_sent_as_they_are(seb, topic):
    lines = b'{"value":"1","key":"a","headers":{"h":"x"}}\n\n{"value":null,"key":"a"}\n'
    answer = seb.good("produce", topic, "--ndjson", "--json", stdin=lines)
    assert answer.json["count"] == 2
    first, second = map(json.loads, seb.good("consume", topic, "--json").out.splitlines())
    assert (first["value"], first["headers"]) == ("1", {"h": "x"})
    assert (second["key"], second["value"]) == ("a", None)
    assert seb.good("consume", topic).raw == b"1\n\n"


def test_more_than_fits_into_one_request_is_sent_in_order(seb, topic):
    lines = [str(number) for number in range(250_000)]
    told = seb.good("produce", topic, "--json", stdin="\n".join(lines).encode())
    answers = [json.loads(line) for line in told.out.splitlines()]
    assert len(answers) > 2
    assert sum(answer["count"] for answer in answers) == 250_000
    assert values(seb, topic) == lines


def test_a_refused_line_is_told_with_what_was_stored_before(seb, topic):
    lines = b'{"value":"x"}\n' * 10_000 + b"{}\n"
    told = seb.refused("produce", topic, "--ndjson", stdin=lines)
    assert "(bad_json)" in told
    assert "10,000 records acknowledged, the last at offset 9,999; the next 1 are not" in told
    assert seb.good("topics", "show", topic, "--json").json["log_end_offset"] == 10_000


def test_a_line_that_no_record_can_be_is_refused(seb, topic):
    assert "(record_too_large)" in seb.refused("produce", topic, stdin=b"x" * (1 << 20) + b"y")
    assert "longer than 16 MiB" in seb.refused("produce", topic, stdin=b"x" * (17 << 20))
    assert values(seb, topic) == []


def test_lines_are_stored_though_nobody_reads_the_answers(seb, topic, monkeypatch):
    """As `seb produce t --json --file … | head -1`: it ends with 0."""

    def nobody(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(records, "say", nobody)
    told = seb.good("produce", topic, "--json", stdin=b"1\n" * 150_000)
    assert told.err == "150,000 records acknowledged, the last at offset 149,999\n"


def test_lines_that_cannot_be_read_to_their_end_are_told_with_what_was_stored(seb, topic):
    told = seb("produce", topic, stdin=b"first\n" + b"x" * (17 << 20))
    assert told.code == 1
    assert told.err.splitlines()[0] == "1 record acknowledged, the last at offset 0"
    assert "longer than 16 MiB" in told.err.splitlines()[1]
    assert values(seb, topic) == ["first"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "01234"),
        (["--offset", "3"], "34"),
        (["--offset", "latest"], ""),
        (["--offset", "-2"], "34"),
        (["--offset", "@2020-01-01T00:00:00Z"], "01234"),
        (["--until", "2"], "01"),
        (["--until", "@2020-01-01T00:00:00Z"], ""),
        (["--offset", "1", "--until", "4"], "123"),
        (["--max", "2"], "01"),
        (["--offset", "4", "--max", "9"], "4"),
        (["--follow", "--max", "5"], "01234"),
    ],
)
def test_what_is_asked_for_is_read(seb, topic, flags, expected):
    seb.good("produce", topic, stdin=b"0\n1\n2\n3\n4\n")
    assert values(seb, topic, *flags) == list(expected)


def test_pages_follow_one_another(seb, topic, monkeypatch):
    monkeypatch.setattr("seb_appliance.client.reading.limits.FETCH_RECORDS_MAX", 2)
    seb.good("produce", topic, stdin=b"0\n1\n2\n3\n4\n")
    assert values(seb, topic) == list("01234")
    assert values(seb, topic, "--max", "3") == list("012")
    assert values(seb, topic, "--until", "3") == list("012")
    assert values(seb, topic, "--group", "pages", "--commit") == list("01234")
    assert values(seb, topic, "--group", "pages") == []


@pytest.mark.parametrize("command", [["consume"], ["consume", "--follow"], ["tail"]])
def test_who_reads_a_topic_that_is_made_anew_is_told(seb, topic, monkeypatch, command):
    """Nothing of the new one is written: it would begin in its middle."""
    seb.good("produce", topic, stdin=b"0\n1\n2\n3\n4\n")
    write, written = records.write, []

    def meanwhile(page):
        write(page)
        if not written:
            url, key = seb.appliance.base_url, seb.appliance.admin_key
            with Admin(url, key) as admin:
                admin.delete_topic(topic)
                admin.create_topic(topic)
            with Producer(url, key) as producer:
                for _ in range(9):
                    producer.send(topic, "new")
        written.append(page)

    monkeypatch.setattr(records, "write", meanwhile)
    monkeypatch.setattr("seb_appliance.client.reading.limits.FETCH_RECORDS_MAX", 1)
    told = seb(*command, topic, "--offset", "0")
    assert told.code == 1
    assert "(topic_replaced)" in told.err
    assert "new" not in told.out


def test_a_group_goes_on_where_it_committed(seb, topic):
    seb.good("produce", topic, stdin=b"0\n1\n2\n")
    assert values(seb, topic, "--group", topic) == list("012")
    assert values(seb, topic, "--group", topic, "--max", "1", "--commit") == ["0"]
    assert values(seb, topic, "--group", topic) == list("12")
    assert values(seb, topic, "--group", topic, "--commit") == list("12")
    assert values(seb, topic, "--group", topic, "--commit") == []
    assert seb.good("groups", "show", topic, "--json").json["lag_records"] == 0


def test_a_new_group_begins_where_it_is_told(seb, topic):
    seb.good("produce", topic, stdin=b"0\n1\n")
    assert values(seb, topic, "--group", topic, "--offset", "latest") == []
    assert values(seb, topic, "--group", topic, "--offset", "earliest") == list("01")


def test_another_consumer_of_the_group_is_found_out(seb, topic, monkeypatch):
    """It commits between our read and our commit."""
    seb.good("produce", topic, stdin=b"0\n1\n2\n")
    commit = Commits.commit

    async def meanwhile(commits, offsets):
        other = Commits(commits._caller, topic, None)
        other._topic_ids, other._committed = commits._topic_ids, {topic: None}
        await commit(other, {topic: 1})
        await commit(commits, offsets)

    monkeypatch.setattr(Commits, "commit", meanwhile)
    told = seb("consume", topic, "--group", topic, "--commit")
    assert (told.code, told.raw) == (1, b"0\n1\n2\n")
    assert "(offset_conflict)" in told.err
    shown = seb.good("groups", "show", topic, "--json").json
    assert shown["topics"][0]["committed_offset"] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce"],
        ["produce", "t", "--ndjson", "--key", "k"],
        ["consume", "t", "--max", "0"],
        ["consume", "t", "--follow", "--until", "5"],
        ["consume", "t", "--commit"],
        ["consume", "t", "--group", "g", "--offset", "5"],
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_is_sent(seb, arguments):
    assert seb.refused(*arguments, code=78)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["consume", "nope"], "topic_not_found"),
        (["consume", "nope", "--group", "g"], "topic_not_found"),
        (["consume", "refusing", "--offset", "soon"], "bad_parameter"),
        (["consume", "refusing", "--offset", "7"], "offset_out_of_range"),
        (["consume", "refusing", "--until", "soon"], "bad_parameter"),
        (["consume", "refusing", "--group", "g..g"], "bad_name"),
    ],
)
def test_a_refusal_is_one_sentence_with_its_code(seb, arguments, code):
    seb.good("topics", "create", "refusing")
    assert seb.refused(*arguments).endswith(f"({code}).")


def test_nothing_on_stdin_stores_nothing(seb, topic):
    assert seb.good("produce", topic).err == "no record acknowledged\n"
    assert values(seb, topic) == []


@pytest.mark.parametrize("torn", [0, 1])
@pytest.mark.parametrize("whole", [0, 2])
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_full_output_is_told_and_what_it_does_not_hold_is_not_committed(
    seb, topic, monkeypatch, whole, torn, flags
):
    def full(data: bytes) -> None:
        lines = data.split(b"\n")[:whole]
        raise OutputError("No space left on device", sum(len(line) + 1 for line in lines) + torn)

    seb.good("produce", topic, stdin=b"0\n1\n2\n")
    with monkeypatch.context() as patch:
        patch.setattr("seb_appliance.cli.commands.records.write", full)
        told = seb.refused("consume", topic, "--group", topic, "--commit", *flags, code=74)
    assert told == (
        f"cannot write to stdout (No space left on device); what comes before offset {whole} is "
        "written, nothing new is committed."
    )
    assert "(group_not_found)" in seb.refused("groups", "show", topic)


@pytest.mark.parametrize("body", ["value", "items", "lines"])
def test_record_objects_are_read_as_such_whatever_the_topic_says_of_other_bodies(seb, body):
    seb.good("topics", "create", f"plain-{body}", "--body", body)
    for command in (("produce", f"plain-{body}"), ("import", "--format", "ndjson", "--append")):
        topic = ("--topic", f"plain-{body}") if command[0] == "import" else ()
        form = () if command[0] == "import" else ("--ndjson",)
        seb.good(*command, *topic, *form, stdin=b'{"value":"1","key":"a"}\n{"value":"2"}\n')
    lines = seb.good("consume", f"plain-{body}", "--json").out.splitlines()
    found = [(one["key"], one["value"]) for one in map(json.loads, lines)]
    assert found == [("a", "1"), (None, "2")] * 2
