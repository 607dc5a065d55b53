"""`seb queues …`"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from tests.cli.conftest import Seb


def work(seb: Seb, verb: str, queue: str = "work", **body: object) -> Any:
    request = urllib.request.Request(
        f"{seb.appliance.base_url}/v1/queues/{queue}/{verb}",
        json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {seb.key_file.read_text().strip()}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_a_queue_is_reset_purged_and_redriven(seb: Seb) -> None:
    seb.good("queues", "set", "work", "--topic", "jobs", "--dead-letter", "dead")
    seb.good("produce", "jobs", stdin=b"a\nb\nc\n")
    taken = [one["delivery"] for one in work(seb, "take")["records"]]
    work(seb, "reject", deliveries=taken[:2], reason="timeout")

    assert seb.good("queues", "redrive", "work", "--dry-run").rows == [["jobs", "2"]]
    assert seb.good("queues", "redrive", "work", "--offset", "1").rows == [["jobs", "1"]]
    told = seb.good("queues", "redrive", "work", "--to", "other", "--json").json
    assert (told["records"], told["before"]) == ({"other": 1}, 1)
    forged = {"value": 1, "headers": {"seb-dead-queue": "work", "seb-dead-topic": "payments"}}
    seb.good("produce", "dead", "--ndjson", stdin=json.dumps(forged).encode())
    told = seb.good("queues", "redrive", "work").out
    assert ("2 redriven before" in told, "1 left, because" in told) == (True, True), told

    assert seb.good("queues", "purge", "work", "--dry-run").rows == [["jobs", "2", "4"]]
    asked = seb("queues", "purge", "work", stdin=b"n\n")
    assert (asked.code, "Begin work there" in asked.err) == (1, True)
    assert seb.good("queues", "purge", "work", "--yes").rows == [["jobs", "2", "4"]]
    assert seb.good("queues", "reset", "work", "--to", "-1", "--yes").rows == [["jobs", "0", "3"]]
    (left,) = work(seb, "take")["records"]
    assert (left["offset"], left["attempt"]) == (3, 1)
    seb.refused("queues", "reset", "work", "--to", "nowhere", "--yes")


def test_delayed_records_are_shown_and_not_handed_out(seb: Seb) -> None:
    seb.good("queues", "set", "patient", "--topic", "later")
    seb.good("produce", "later", "--delay", "1h", stdin=b"later\n")
    seb.good("produce", "later", stdin=b"now\n")
    (taken,) = work(seb, "take", "patient")["records"]
    assert taken["value"] == "now"
    (*_, names, row) = seb.good("queues", "show", "patient").out.splitlines()
    assert names.split() == ["topic", "waiting", "oldest", "delayed", "acked", "rejected", "lost"]
    assert row.split()[:2] + row.split()[3:] == ["later", "2", "s", "1", "0", "0", "0"]
    for wrong in (("--delay", "400d"), ("--ndjson", "--delay", "1s")):
        assert seb("produce", "later", *wrong, stdin=b"{}\n").code == 78


def test_pauses_grow_by_a_factor_and_are_shortened_at_random_as_it_is_told(seb: Seb) -> None:
    rule = ("--retry-factor", "3", "--retry-jitter", "0")
    seb.good("queues", "set", "pauses", "--topic", "pauses", *rule)
    retry = seb.good("queues", "show", "pauses", "--json").json["settings"]["retry"]
    assert (retry["factor"], retry["jitter"]) == (3.0, 0.0)
    for wrong in ("0.5", "101", "nan"):
        seb.refused("queues", "set", "pauses", "--retry-factor", wrong, code=78)
