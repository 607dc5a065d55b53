"""`seb subscriptions …`"""

from __future__ import annotations

from tests.cli.conftest import Seb

URL = "http://127.0.0.1:9/hook"  # nothing is sent to an address that is not public


def test_a_subscription_is_made_shown_changed_and_deleted(seb: Seb) -> None:
    made = seb.good("subscriptions", "set", "mails", "--topic", "m.*", "--to", URL)
    assert "whsec_" in made.out
    assert "not shown again" in made.err
    headers = seb.folder / "headers"
    headers.write_text("Authorization: Bearer hidden\n\nX-Kind: a:b\n")
    changed = seb.good(
        "subscriptions", "set", "mails", "--body", "records", "--batch", "50", "--timeout", "30s",
        "--rate", "5", "--headers-file", str(headers), "--json",
    ).json  # fmt: skip
    assert changed["settings"] == {
        "url": URL, "body": "records", "batch": 50, "rate": 5, "timeout_ms": 30_000,
    }  # fmt: skip
    assert changed["headers"] == ["Authorization", "X-Kind"]
    shown = seb.good("subscriptions", "show", "mails")
    assert "hidden" not in shown.out + made.out
    assert "30s" in shown.out
    assert "no requests" in shown.out
    assert (
        seb.good("subscriptions", "set", "mails", "--rate", "none", "--json").json["secrets"] == 1
    )
    assert seb.good("subscriptions").rows[0][:5] == ["mails", "m.*", URL, "records", "active"]
    assert "paused" in seb.good("subscriptions", "pause", "mails").out
    assert "active" in seb.good("subscriptions", "resume", "mails").out
    assert seb("subscriptions", "delete", "mails", stdin=b"\n").code == 1
    seb.good("subscriptions", "delete", "mails", "--yes")
    assert seb.good("subscriptions").out == "no subscriptions\n"
    assert seb.good("queues", "show", "mails")


def test_a_test_and_a_replay_tell_what_came_of_them(seb: Seb) -> None:
    seb.good("produce", "again.here", stdin=b"1\n2\n")
    seb.good("queues", "set", "again", "--topic", "again.*", "--start", "latest")
    seb.good("subscriptions", "set", "again", "--to", URL)
    told = seb("subscriptions", "test", "again")
    assert (told.code, "neither public" in told.out) == (1, True)
    seb.good("subscriptions", "pause", "again")
    assert seb("subscriptions", "replay", "again", "-1", stdin=b"\n").code != 0
    assert seb.good("subscriptions", "replay", "again", "--yes", "--", "-1").rows == [
        ["again.here", "1"]
    ]


def test_what_is_missing_or_wrong_is_told(seb: Seb) -> None:
    assert "--to" in seb.refused("subscriptions", "set", "new", code=78)
    assert "no queue" in seb.refused("subscriptions", "set", "new", "--to", URL)
    assert "no subscription" in seb.refused("subscriptions", "show", "nothing")
    headers = seb.folder / "headers"
    headers.write_text("no colon\n")
    wanted = ("subscriptions", "set", "new", "--to", URL, "--headers-file", str(headers))
    assert "NAME: VALUE" in seb.refused(*wanted, code=78)
