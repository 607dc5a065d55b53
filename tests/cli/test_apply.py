"""`seb apply`"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from seb_appliance.cli import options as asking
from seb_appliance.client import Admin, ApplianceError
from tests.cli.conftest import Seb
from tests.support.servers.s3_server import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "seb.yaml"


def write(seb: Seb, text: str, name: str = "seb.yaml") -> str:
    path = seb.folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def changes(seb: Seb, path: str, *more: str) -> list[tuple[str, str, str]]:
    """What would be changed: action, kind, name."""
    told = seb("apply", path, "--diff", "--json", *more)
    found = [(c["action"], c["kind"], c["name"]) for c in told.json["changes"]]
    assert told.code == (2 if found else 0), told.err
    assert not any(change["applied"] for change in told.json["changes"])
    return found


def api_key(seb: Seb, name: str) -> dict[str, Any]:
    (found,) = (k for k in seb.good("api-keys", "--json").json["api_keys"] if k["name"] == name)
    return found


def test_the_example_is_made_and_then_nothing_is_left_to_do(seb: Seb) -> None:
    told = seb("apply", str(EXAMPLE), "--diff")
    assert told.code == 2
    assert "+ topic orders.eu  linger 20ms, retention 30d\n" in told.out
    assert seb.good("topics", "--pattern", "orders.*").rows == []
    done = seb.good("apply", str(EXAMPLE))
    lines = [line for line in done.out.splitlines() if not line.startswith(" ")]
    assert lines == told.out.splitlines()
    assert changes(seb, str(EXAMPLE)) == []
    assert seb.good("apply", str(EXAMPLE)).out == ""
    settings = seb.good("topics", "show", "orders.us", "--json").json["settings"]
    assert {name: value for name, value in settings.items() if value is not None} == {
        "linger_ms": 20, "retention_bytes": 10 << 30,
    }  # fmt: skip
    key = api_key(seb, "lake")
    assert [grant["groups"] for grant in key["grants"]] == ["lake", "lake"]
    assert key["expires"].startswith("2030-01-01T00:00:00")
    assert api_key(seb, "checkout")["quotas"]["bytes_in_per_second"] == 1 << 20


def test_what_is_exported_makes_no_difference(seb: Seb) -> None:
    seb.good("topics", "create", "exported", "--cleanup", "compact,delete", "--dirty-ratio", "0.25")
    seb.good("topics", "change", "exported", "early_flush=on", "compression=none", "linger=0")
    seb.good("produce", "exported", stdin=b"a\nb\n")
    seb.good("groups", "commit", "exporting", "exported=1")
    seb.good(
        "api-keys", "create", "null", "--grant", "admin", "--grant", "consume:**:lake",
        "--description", 'on: "é" \x1b[31m\n- x', "--expires", "90d",
    )  # fmt: skip
    seb.good("api-keys", "change", api_key(seb, "null")["api_key_id"], "--disable")
    exported = seb.good("apply", "--export").out
    path = write(seb, exported)
    assert changes(seb, path, "--prune") == []
    assert seb.good("apply", path, "--prune").out == ""
    as_json = write(seb, seb.good("apply", "--export", "--json").out, "seb.json")
    assert changes(seb, as_json, "--prune") == []
    assert "    dirty_ratio: 0.25\n" in exported
    assert "    exported: earliest\n" in exported


def test_what_differs_is_changed_and_what_is_not_named_goes_back_to_its_default(seb: Seb) -> None:
    seb.good("topics", "create", "differs", "--linger", "20ms", "--retention", "7d")
    seb.good("api-keys", "create", "differs", "--grant", "admin", "--requests-per-second", "9")
    before = api_key(seb, "differs")
    path = write(
        seb,
        "topics: {differs: {linger: 30ms}}\n"
        "api_keys: {differs: {grants: [consume:a], expires: 2031-02-03T04:05:06.5+01:00}}\n",
    )
    assert seb("apply", path, "--diff").out.splitlines() == [
        "~ topic differs  linger 20ms -> 30ms, retention 7d -> unset",
        (
            f"~ API key differs ({before['api_key_id']})  grants admin -> consume:a, "
            "requests_per_second 9 -> unset, expires unset -> 2031-02-03T03:05:06.500000Z"
        ),
    ]
    seb.good("apply", path)
    settings = seb.good("topics", "show", "differs", "--json").json["settings"]
    assert (settings["linger_ms"], settings["retention_ms"]) == (30, None)
    after = api_key(seb, "differs")
    assert after["quotas"]["requests_per_second"] is None
    assert [grant["operation"] for grant in after["grants"]] == ["consume"]
    assert changes(seb, path) == []


def test_a_group_begins_where_the_file_says_and_is_never_moved(seb: Seb) -> None:
    seb.good("produce", "groups.a", stdin=b"1\n2\n3\n")
    seb.good("produce", "groups.b", stdin=b"1\n2\n3\n")
    seb.good("topics", "trim", "groups.a", "--before", "1", "--yes")
    path = write(seb, "groups: {reads: {groups.a: earliest, groups.b: latest}}\n")
    assert "+ group reads  groups.a earliest, groups.b latest\n" in seb.good("apply", path).out
    assert offsets(seb) == {"groups.a": 1, "groups.b": 3}
    seb.good("groups", "commit", "reads", "groups.a=2")
    assert seb.good("apply", path).out == ""
    assert offsets(seb) == {"groups.a": 2, "groups.b": 3}


def offsets(seb: Seb) -> dict[str, int]:
    shown = seb.good("groups", "show", "reads", "--json").json
    return {topic["topic"]: topic["committed_offset"] for topic in shown["topics"]}


def test_a_group_that_began_to_read_meanwhile_is_not_put_back(
    seb: Seb, monkeypatch: pytest.MonkeyPatch
) -> None:
    seb.good("produce", "races", stdin=b"1\n2\n")
    path = write(seb, "groups: {racer: {races: earliest}}\n")
    look_at = Admin.topic

    def commits_first(admin: Admin, topic: str) -> Any:
        admin.commit("racer", {"races": 2})
        return look_at(admin, topic)

    monkeypatch.setattr(Admin, "topic", commits_first)
    seb.good("apply", path)
    (topic,) = seb.good("groups", "show", "racer", "--json").json["topics"]
    assert topic["committed_offset"] == 2


def test_what_is_not_in_the_file_stays_and_is_told(seb: Seb) -> None:
    seb.good("topics", "create", "stays")
    told = seb("apply", write(seb, "topics: {}\n"), "--diff")
    assert told.code == 0
    assert told.out == ""
    assert "topic stays is not in the file and is kept\n" in told.err
    assert "API key" not in told.err  # a part that the file does not name is not looked at
    seb.good("topics", "show", "stays")


def test_what_is_not_in_the_file_is_deleted_when_a_person_says_so(seb: Seb) -> None:
    seb.good("produce", "goes", stdin=b"1\n")
    seb.good("groups", "commit", "goes", "goes=1")
    seb.good("api-keys", "create", "goes", "--grant", "admin")
    keep = json.loads(seb.good("apply", "--export", "--json").out)
    for part in (keep[name] for name in ("topics", "groups", "api_keys")):
        del part["goes"]
    path = write(seb, json.dumps(keep))
    wanted = [("delete", kind, "goes") for kind in ("group", "topic", "api_key")]
    assert changes(seb, path, "--prune") == wanted
    told = seb("apply", path, "--prune", stdin=b"\n")
    assert told.code == 1
    assert "- topic goes with 1 record\n" in told.err
    assert changes(seb, path, "--prune") == wanted
    told = seb.good("apply", path, "--prune", stdin=b"y\n")
    assert [line.split()[0] for line in told.out.splitlines()] == ["-", "-", "-"]
    assert changes(seb, path, "--prune") == []


def test_the_api_key_in_use_is_never_deleted(seb: Seb) -> None:
    seb.good("api-keys", "create", "other", "--grant", "admin")
    told = seb.good("apply", write(seb, "api_keys: {}\n"), "--prune", "--yes")
    assert "API key admin (" in told.err
    assert [row[1] for row in seb.good("api-keys").rows] == ["admin"]


def test_the_secret_of_a_new_api_key_is_shown_once_and_works(seb: Seb) -> None:
    path = write(seb, "api_keys: {shown: {grants: [admin]}}\n")
    told = seb.good("apply", path)
    assert "shown only once" in told.err
    key = seb.folder / "shown.key"
    key.write_text(told.out.split()[-1])
    assert seb.good("apply", path, "--key-file", str(key)).out == ""
    again = write(seb, "api_keys: {shown too: {grants: [admin]}}\n")
    (made,) = seb.good("apply", again, "--json").json["secrets"]
    assert made["name"] == "shown too"
    assert made["secret"].startswith(f"seb_{made['api_key_id']}_")


def test_secrets_go_into_a_file_that_only_its_owner_may_read(seb: Seb) -> None:
    secrets = seb.folder / "secrets"
    for name in ("kept", "kept too"):
        path = write(seb, f"api_keys: {{{name}: {{grants: [admin]}}}}\n")
        told = seb.good("apply", path, "--secrets-file", str(secrets))
        assert "seb_" not in told.out + told.err
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    kept = [json.loads(line) for line in secrets.read_text().splitlines()]
    assert [secret["name"] for secret in kept] == ["kept", "kept too"]
    key = seb.folder / "kept.key"
    key.write_text(kept[0]["secret"])
    seb.good("topics", "--key-file", str(key))


def test_no_api_key_is_made_whose_secret_has_no_safe_place(seb: Seb) -> None:
    path = write(seb, "api_keys: {unsafe: {grants: [admin]}}\n")
    secrets = seb.folder / "secrets"
    secrets.touch(mode=0o644)
    secrets.chmod(0o644)
    link = seb.folder / "link"
    link.symlink_to(seb.folder / "elsewhere")
    for place in (secrets, link, seb.folder / "no" / "folder"):
        seb.refused("apply", path, "--secrets-file", str(place), code=78)
    assert changes(seb, path) == [("create", "api_key", "unsafe")]
    secrets.chmod(0o600)
    seb.good("apply", path, "--secrets-file", str(secrets))


def test_no_secret_goes_into_a_file_of_somebody_else(
    seb: Seb, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(seb, "api_keys: {theirs: {grants: [admin]}}\n")
    secrets = seb.folder / "secrets"
    secrets.touch(mode=0o600)
    with monkeypatch.context() as patched:
        patched.setattr("seb_appliance.cli.commands.apply.os.geteuid", lambda: os.getuid() + 1)
        seb.refused("apply", path, "--secrets-file", str(secrets), code=78)
    assert changes(seb, path) == [("create", "api_key", "theirs")]


def test_a_secret_that_cannot_be_written_is_told_of_with_the_way_out(
    seb: Seb, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = write(seb, "api_keys: {full: {grants: [admin]}}\n")
    with monkeypatch.context() as patched:
        patched.setattr("seb_appliance.cli.commands.apply.os.write", full)
        sentence = seb.refused("apply", path, "--secrets-file", str(seb.folder / "secrets"))
    key = api_key(seb, "full")["api_key_id"]
    assert f"the API key {key} was created, but its secret could not be written" in sentence
    assert f"seb api-keys rotate {key} gives it a new one" in sentence


def test_a_secret_that_a_killed_run_did_not_write_is_told_of_by_the_next_one(
    seb: Seb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed when the API key was made, at the first write into the file."""
    secrets = seb.folder / "secrets"
    path = write(seb, "api_keys: {killed: {grants: [consume:a]}, used: {grants: [admin]}}\n")
    with monkeypatch.context() as patched:
        patched.setattr("os.write", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit, match="killed"):
            seb("apply", path, "--secrets-file", str(secrets))
    killed = api_key(seb, "killed")["api_key_id"]
    for more in (["--diff"], ["--yes"], []):
        told = seb("apply", path, "--secrets-file", str(secrets), *more).err
        assert told.splitlines()[0] == (
            f"the secret of API key killed ({killed}) is not in {secrets}, and no use is known: "
            f"if nobody has it, seb api-keys rotate {killed} gives it a new one"
        )
    secret = seb.good("api-keys", "rotate", killed, "--yes", "--json").json["secret"]
    key = seb.folder / "killed.key"
    key.write_text(secret)
    seb.good("topics", "--key-file", str(key))
    assert "rotate" not in seb.good("apply", path, "--secrets-file", str(secrets)).err


def test_a_secrets_file_that_cannot_be_looked_at_is_told_of_in_one_sentence(seb: Seb) -> None:
    path, secrets = write(seb, "api_keys: {}\n"), seb.folder / ("x" * 300)
    told = seb("apply", path, "--secrets-file", str(secrets)).err
    assert f"cannot read {secrets} (File name too long)" in told


def test_what_is_refused_stops_it_and_the_same_command_goes_on_later(seb: Seb) -> None:
    path = write(
        seb,
        "topics:\n"
        "  part.a: {}\n"
        "  part.b: {linger: 9h}\n"  # longer than an appliance takes
        "  part.c: {}\n",
    )
    told = seb("apply", path, "--json")
    assert told.code == 1
    assert [change["applied"] for change in told.json["changes"]] == [True, False, False]
    sentence = told.err.splitlines()[-1]
    assert "(bad_request). Changes made: 1 of 3; create topic part.b was not made." in sentence
    path = write(seb, "topics: {part.a: {}, part.b: {linger: 9ms}, part.c: {}}\n")
    assert changes(seb, path) == [("create", "topic", "part.b"), ("create", "topic", "part.c")]
    seb.good("apply", path)
    assert changes(seb, path) == []


def test_an_api_key_that_may_have_been_made_is_told_of(
    seb: Seb, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(admin: Admin, *_: object, **__: object) -> Any:
        raise ApplianceError("It did not answer", code="no_answer", side_effects="unknown")

    monkeypatch.setattr(Admin, "create_api_key", lost)
    path = write(seb, "api_keys: {lost: {grants: [admin]}}\n")
    told = seb("apply", path)
    assert told.code == 71
    assert (
        "create API key lost may have been made. If the API key exists, its secret is lost"
        in told.err
    )


def test_an_interrupt_tells_how_far_it_came(seb: Seb, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(admin: Admin, *_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Admin, "create_topic", interrupted)
    told = seb("apply", write(seb, "topics: {interrupted: {}}\n"))
    assert told.code == 130
    assert "Changes made: 0 of 1; create topic interrupted may have been made." in told.err


def test_two_api_keys_of_one_name_are_refused_before_anything_is_done(seb: Seb) -> None:
    made = [
        seb.good("api-keys", "create", "twin", "--grant", "admin", "--json").json for _ in range(2)
    ]
    path = write(seb, "topics: {twins: {}}\napi_keys: {twin: {grants: [admin]}}\n")
    assert "both called 'twin'" in seb.refused("apply", path)
    assert "both called 'twin'" in seb.refused("apply", "--export")
    assert seb.good("topics", "--pattern", "twins").rows == []
    seb.good("api-keys", "revoke", made[0]["api_key_id"], "--yes")
    seb.good("apply", path)


def test_of_two_that_make_an_api_key_of_one_name_one_is_refused(
    seb: Seb, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(seb, "api_keys: {raced: {grants: [admin]}}\n")
    create = Admin.create_api_key

    def other_first(*given: Any, **more: Any) -> Any:
        create(*given, **more)
        return create(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Admin, "create_api_key", other_first)
        sentence = seb.refused("apply", path)
    assert f"The API key {api_key(seb, 'raced')['api_key_id']} has this name " in sentence
    assert "create API key raced was not made" in sentence
    assert seb.good("apply", path).out == ""


def test_without_the_right_to_it_nothing_is_changed(seb: Seb) -> None:
    made = seb.good("api-keys", "create", "weak", "--grant", "produce:x", "--json").json
    key = seb.folder / "weak.key"
    key.write_text(made["secret"])
    path = write(seb, "api_keys: {weak: {grants: [admin]}}\n")
    sentence = seb.refused("apply", path, "--key-file", str(key))
    assert sentence.endswith("(forbidden). Nothing was changed.")
    assert seb.refused("apply", "--export", "--key-file", str(key)).endswith("was changed.")


def test_where_no_appliance_is_nothing_was_changed(
    seb: Seb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["seb_appliance.cli.commands.apply"], "PATIENCE_S", 0.0)
    path = write(seb, "topics: {}\n")
    nowhere = f"http://127.0.0.1:{free_port()}"
    sentence = seb.refused("apply", path, "--url", nowhere, code=69)
    assert sentence.startswith("Cannot reach an appliance at ")
    assert sentence.endswith("(unreachable). Nothing was changed.")


def test_the_file_may_come_by_stdin(seb: Seb) -> None:
    seb.good("apply", "-", stdin=b"topics: {by.stdin: {}}\n")
    seb.good("topics", "show", "by.stdin")


@pytest.mark.parametrize(
    "arguments", [[], ["seb.yaml", "--export"], ["no-such.yaml"], ["-", "--what"]]
)
def test_what_cannot_be_meant_is_refused(seb: Seb, arguments: list[str]) -> None:
    write(seb, "topics: {}\n")
    seb.refused("apply", *arguments, code=78)


def test_nothing_is_asked_that_has_an_answer(seb: Seb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither --diff nor --yes nor a file without deletions asks."""
    monkeypatch.setattr(asking.click, "confirm", lambda *_, **__: pytest.fail("asked"))
    seb.good("topics", "create", "unasked")
    path = write(seb, "groups: {}\n")
    seb("apply", path, "--prune", "--diff")
    seb.good("apply", path, "--prune", "--yes")
    seb.good("apply", path, "--prune")


INLET = """
inlets:
  shop:
    topic: shop.events
    scheme: hmac
    header: X-Sign
    body: value
    keep_headers: X-Kind, X-Other
    requests_per_second: 5
    secret_file: {secret}
"""


def test_an_inlet_is_made_changed_and_pruned(seb: Seb) -> None:
    secret = seb.folder / "shop.secret"
    path = write(seb, INLET.format(secret=secret))
    assert str(secret) in seb.refused("apply", path, code=78)
    secret.write_text("very secret\n")
    made = seb.good("apply", path)
    assert "+ inlet shop  topic shop.events" in made.out
    assert "very secret" not in made.out + made.err
    assert changes(seb, path) == []
    secret.unlink()
    changed = write(seb, INLET.format(secret=secret).replace("X-Sign", "X-Other"))
    assert "~ inlet shop  header X-Sign -> X-Other" in seb.good("apply", changed).out
    shown = seb.good("inlets", "show", "shop", "--json").json
    assert (shown["secrets"], shown["settings"]["verify"]["header"]) == (1, "X-Other")
    assert shown["settings"]["quotas"]["requests_per_second"] == 5
    exported = seb.good("apply", "--export").out
    assert changes(seb, write(seb, exported)) == []
    empty = write(seb, "inlets: {}")
    assert "- inlet shop" in seb.good("apply", empty, "--prune", "--yes").out
    assert seb.good("inlets").out == "no inlets\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{scheme: github}", "topic is missing"),
        ("{topic: a}", "scheme is missing"),
        ("{topic: a, scheme: github, secret: x}", "unknown name"),
        ("{topic: a, scheme: [github]}", "expected one value"),
        ("{topic: a, scheme: github, tolerance_s: soon}", "soon"),
    ],
)
def test_an_inlet_that_cannot_be_is_refused_with_its_line(seb: Seb, text: str, words: str) -> None:
    told = seb.refused("apply", write(seb, f"inlets:\n  shop: {text}\n"), code=78)
    assert "line 2" in told
    assert words in told


@pytest.mark.parametrize(
    ("more", "words"), [("", "secret_file names the file"), (", secret_file: none", "cannot read")]
)
def test_a_secret_that_is_missing_is_told_before_anything_is_done(
    seb: Seb, more: str, words: str
) -> None:
    text = f"topics: {{undone: {{}}}}\ninlets: {{bare: {{topic: undone, scheme: github{more}}}}}\n"
    assert words in seb.refused("apply", write(seb, text), code=78)
    assert seb.good("topics", "--pattern", "undone").rows == []


def test_another_scheme_takes_the_secret_of_the_file(seb: Seb) -> None:
    secret = write(seb, "no base64!\n", "plain")
    path = write(seb, f"inlets: {{again: {{topic: a, scheme: github, secret_file: {secret}}}}}\n")
    seb.good("apply", path)
    secret = write(seb, "whsec_c2VjcmV0\n", "whsec")
    path = write(seb, f"inlets: {{again: {{topic: a, scheme: svix, secret_file: {secret}}}}}\n")
    assert "scheme github -> svix" in seb.good("apply", path).out
    assert changes(seb, path) == []


def test_headers_to_keep_may_be_a_list(seb: Seb) -> None:
    secret, both = write(seb, "s\n", "secret"), ("[X-A, X-B]", "'X-A, X-B'")
    for given in both:
        path = write(
            seb,
            "inlets: {lists: {topic: a, scheme: github, "
            f"keep_headers: {given}, secret_file: {secret}}}}}\n",
        )
        seb.good("apply", path)
        assert changes(seb, path) == []
    settings = seb.good("inlets", "show", "lists", "--json").json["settings"]
    assert settings["keep_headers"] == ["X-A", "X-B"]
