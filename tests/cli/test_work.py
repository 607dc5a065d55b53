"""`seb work`: a command for each record."""

from __future__ import annotations

import pytest

from seb_appliance.cli.commands.queues.work import variables
from seb_appliance.client import transport
from seb_appliance.client.working import Delivery
from tests.cli.conftest import Seb
from tests.cli.test_lost_answers import on_the_way
from tests.cli.test_queues import work

COUNTS = ("acknowledged", "to_retry", "rejected")


def ran(seb: Seb, *command: str, **options: str) -> tuple[int, ...]:
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    told = seb.good("work", "work", "--until-empty", "--json", *flags, "--", *command).json
    return tuple(told[name] for name in COUNTS)


@pytest.fixture
def queue(seb: Seb, request: pytest.FixtureRequest) -> str:
    """The topic of a queue `work` that only this test uses."""
    topic = f"jobs-{abs(hash(request.node.name))}"
    seb("queues", "delete", "work", "--yes")
    seb.good("queues", "set", "work", "--topic", topic, "--dead-letter", f"dead-{topic}")
    return topic


def test_each_record_is_the_input_of_the_command(seb: Seb, queue: str) -> None:
    seb.good("produce", queue, "--key", "k", stdin=b"one\ntwo\n")
    out = seb.folder / "out"
    script = f'cat >> {out}; echo " $RECORD_TOPIC $RECORD_OFFSET $RECORD_KEY" >> {out}'
    assert ran(seb, "sh", "-c", script) == (2, 0, 0)
    assert out.read_text() == f"one {queue} 0 k\ntwo {queue} 1 k\n"
    assert ran(seb, "sh", "-c", script) == (0, 0, 0)


def test_a_path_stands_for_the_braces(seb: Seb, queue: str) -> None:
    seb.good("produce", queue, stdin=b"first\nsecond\n")
    out = seb.folder / "out"
    assert ran(seb, "sh", "-c", f"cat {{}} >> {out}; cat", concurrency="4") == (2, 0, 0)
    assert sorted(out.read_text()) == sorted("firstsecond")


def test_75_retries_and_other_codes_reject_with_the_last_line(seb: Seb, queue: str) -> None:
    seb.good("produce", queue, stdin=b"later\nwrong\n")
    script = "read -r x; [ $x = later ] && exit 75; echo why; echo 'no such address' >&2; exit 3"
    assert ran(seb, "sh", "-c", script) == (0, 1, 1)
    dead = seb.good("consume", f"dead-{queue}", "--json").json
    assert dead["headers"]["seb-dead-reason"] == "no such address"
    assert seb.good("queues", "show", "work", "--json").json["retrying"] == 1


def test_a_command_that_hangs_or_is_killed_is_tried_again(seb: Seb, queue: str) -> None:
    seb.good("produce", queue, stdin=b"hangs\n")
    assert ran(seb, "sh", "-c", "sleep 60 & wait", timeout="100ms") == (0, 1, 0)
    seb.good("produce", queue, stdin=b"dies\n")
    assert ran(seb, "sh", "-c", "kill -9 $$") == (0, 1, 0)


def test_a_command_that_does_not_exist_takes_nothing(seb: Seb, queue: str) -> None:
    seb.good("produce", queue, stdin=b"x\n")
    assert "no command ./nothing" in seb.refused("work", "work", "--", "./nothing")
    assert work(seb, "take")["records"][0]["attempt"] == 1


def test_hostile_names_and_contents_are_no_variables() -> None:
    headers = {"a=b\nPATH": b"x", "nul": b"a\0b", "large": b"x" * 40_000}
    delivery = Delivery("q", "t", 1, "", 2, "", "", b"k\xff", None, headers)
    told = variables(delivery)
    assert told["RECORD_HEADER_A_B_PATH"] == "x"
    assert told["RECORD_TOMBSTONE"] == "1"
    assert told["RECORD_KEY"] == "k\udcff"
    assert not {"RECORD_HEADER_NUL", "RECORD_HEADER_LARGE"} & told.keys()


def test_it_says_that_it_waits_for_the_appliance_and_that_it_is_back(
    seb: Seb, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "QUIET_S", 0.0)
    seb.good("produce", queue, stdin=b"x\n")
    with on_the_way(seb, b"POST", "lose_request", "lose_request") as url:
        told = seb.good("work", "work", "--until-empty", "--url", url, "--", "true")
    assert told.err.splitlines() == [
        f"waiting for the appliance: {url} did not answer (the connection was closed)",
        "the appliance answers again",
    ]
