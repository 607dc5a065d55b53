"""`seb bench` against a whole appliance: every workload, every body, every refusal."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.conftest import Seb
from tests.support.servers.s3_server import free_port

SHORT = ("--duration", "200ms", "--warm-up", "0", "--connections", "3")
LONG = ("--duration", "600ms", *SHORT[2:])  # something happens in it on a busy machine, too
RIGHT = "count, order, offsets and content are right"


@pytest.mark.parametrize("body", ["json", "ndjson", "batch"])
@pytest.mark.parametrize("workload", ["produce", "consume", "e2e", "mixed", "fan"])
def test_a_workload_runs_with_records_together(seb: Seb, workload: str, body: str) -> None:
    together = ("--body", body, "--records-per-request", "4", "--record-bytes", "100B")
    result = seb.good("bench", workload, *LONG, *together, "--json").json
    assert result["verified"]["mistakes"] == []
    assert result["verified"]["records"] >= 4
    assert result["is_whole"]
    for row in result["rows"]:
        assert row["latency"]["samples"] > 0, row["what"]


@pytest.mark.parametrize("workload", ["produce", "consume", "e2e", "mixed", "fan"])
def test_a_workload_runs_with_single_records(seb: Seb, workload: str) -> None:
    told = seb.good("bench", workload, *LONG)
    assert RIGHT in told.out
    assert "p99.999" in told.out


def test_records_are_spread_over_topics(seb: Seb) -> None:
    result = seb.good("bench", "produce", *LONG, "--topics", "7", "--keep", "--json").json
    assert result["verified"]["mistakes"] == []
    listed = seb.good("topics", "list", "--pattern", "bench.**", "--json").json["topics"]
    assert len([topic for topic in listed if topic["log_end_offset"]]) == 7


def test_topics_are_deleted_afterwards(seb: Seb) -> None:
    before = seb.good("topics", "list", "--json").json
    seb.good("bench", "mixed", *SHORT)
    assert seb.good("topics", "list", "--json").json == before


def test_at_a_rate_as_many_requests_are_measured_as_were_due(seb: Seb) -> None:
    rate = ("--rate", "400", "--body", "batch", "--records-per-request", "4")
    result = seb.good("bench", "e2e", *SHORT, *rate, "--json").json
    acknowledged, end_to_end = result["rows"]
    assert acknowledged["latency"]["samples"] == 20
    assert end_to_end["latency"]["samples"] == 80


def test_a_preset_is_a_size_at_a_rate_that_options_may_change(seb: Seb) -> None:
    told = seb.good("bench", "produce", "--preset", "256B@3000", *SHORT, "--json").json
    configuration = told["configuration"]
    assert (configuration["record_bytes"], configuration["rate"]) == (256, 3000.0)
    assert configuration["connections"] == 3


def test_what_is_refused_is_told_with_its_code(seb: Seb) -> None:
    told = seb("bench", "produce", *SHORT, "--record-bytes", "2MiB")
    assert told.code == 1
    assert "refused (413 record_too_large)" in told.out


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]


def test_the_report_is_a_page_that_needs_nothing_else(seb: Seb, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    seb.good("bench", "e2e", *LONG, "--report", str(path))
    text = path.read_text()
    parsed = _Links()
    parsed.feed(text)
    assert parsed.links == []
    assert parsed.tags.count("svg") == 2
    assert parsed.tags.count("polyline") == 4
    assert RIGHT in text
    assert not re.search(r"nan|inf\b", text)


def test_a_report_that_cannot_be_written_is_told(seb: Seb, tmp_path: Path) -> None:
    told = seb("bench", "produce", *SHORT, "--report", str(tmp_path / "no" / "report.html"))
    assert told.code == 1
    assert "cannot write" in told.err


def test_no_appliance_is_told_as_such(seb: Seb) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    sentence = seb.refused("bench", "produce", *SHORT, "--url", url, code=69)
    assert "Is it running?" in sentence


def test_a_missing_api_key_is_told_as_such(seb: Seb, tmp_path: Path) -> None:
    missing = ("--key-file", str(tmp_path / "none"))
    assert "cannot read the API key" in seb.refused("bench", "produce", *missing, code=78)


def test_an_api_key_without_the_right_to_make_topics_is_told_so(seb: Seb, tmp_path: Path) -> None:
    made = seb.good("api-keys", "create", "bench", "--grant", "produce", "--json").json
    key_file = tmp_path / "producer"
    key_file.write_text(made["secret"])
    assert "forbidden" in seb.refused("bench", "produce", *SHORT, "--key-file", str(key_file))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("produce", "--records-per-request", "2"), "one record per request"),
        (("produce", "--record-bytes", "32B"), "33 bytes"),
        (("produce", "--body", "batch", "--records-per-request", "17", "--record-bytes", "1MiB"),
         "over 16 MiB"),
        (("produce", "--consumers", "2"), "cannot be used with produce"),
        (("produce", "--topology", "1:20"), "is for fan"),
        (("produce", "--linger", "5ms"), "needs --embedded"),
        (("produce", "--embedded", "--store", "tape"), "s3://BUCKET/PREFIX, not 'tape'"),
        (("produce", "--rate", "5", "--against", "null"), "without --rate"),
        (("produce", "--embedded", "--target", "seb-go"), "cannot be used with seb-go"),
        (("produce", "--rate", "10000000", "--duration", "1h"), "too many to keep"),
        (("consume", "--rate", "5"), "as fast as it can"),
        (("consume", "--consumers", "5"), "--connections"),
        (("e2e", "--consumers", "100", "--topics", "100"), "more than"),
        (("produce", "--duration", "10"), "no unit"),
        (("produce", "--duration", "1ms"), "too small"),
        (("sing",), "'sing'"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(seb: Seb, options: tuple[str, ...], words: str) -> None:
    assert words in seb.refused("bench", *options, code=78)


def test_a_terminal_shows_how_far_it_is_and_keeps_nothing_of_it(seb: Seb) -> None:
    assert "measuring" not in seb.good("bench", "produce", *SHORT).err
    seb.patch.setattr("sys.stderr.isatty", lambda: True)
    told = seb.good("bench", "produce", *SHORT)
    assert "measuring" in told.err
    assert told.err.endswith("\r\033[K")
    assert "\033" not in told.out


@pytest.mark.parametrize("workload", ["produce", "consume", "e2e", "mixed"])
def test_the_go_brokers_api_of_an_appliance_is_right_as_well(seb: Seb, workload: str) -> None:
    for together in ((), ("--body", "batch", "--records-per-request", "4")):
        told = seb.good("bench", workload, *SHORT, "--target", "seb-go", *together)
        assert RIGHT in told.out
