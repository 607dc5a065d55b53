"""`seb api-keys …`"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from seb_appliance.formats.api_key_members import GRANT_OPERATIONS


def test_an_api_key_is_made_listed_shown_and_revoked(seb):
    made = seb.good(
        "api-keys", "create", "checkout", "--grant", "produce:orders.*",
        "--grant", "consume:orders.*:lake", "--expires", "90d", "--json",
    ).json  # fmt: skip
    assert made["grants"] == [
        {"operation": "produce", "topics": "orders.*", "groups": "**"},
        {"operation": "consume", "topics": "orders.*", "groups": "lake"},
    ]
    ahead = datetime.fromisoformat(made["expires"]) - datetime.now(UTC)
    assert timedelta(days=89) < ahead <= timedelta(days=90)
    row = next(r for r in seb.good("api-keys").rows if r[0] == made["api_key_id"])
    assert row[1:4] == ["checkout", "produce:orders.*,", "consume:orders.*:lake"]
    shown = seb.good("api-keys", "show", made["api_key_id"])
    assert "consume:orders.*:lake" in shown.out
    assert made["secret"] not in shown.out + seb.good("api-keys").out
    seb.good("api-keys", "revoke", made["api_key_id"], "--yes")
    assert "(api_key_not_found)" in seb.refused("api-keys", "show", made["api_key_id"])


def test_the_secret_is_shown_once_and_works(seb):
    told = seb.good("api-keys", "create", "once", "--grant", "produce:mine")
    secret = next(line.split()[1] for line in told.out.splitlines() if line.startswith("secret"))
    assert "stored nowhere" in told.err
    path = seb.folder / "mine.key"
    path.write_text(f"{secret}\n")
    seb.good("topics", "create", "mine")
    seb.good("produce", "mine", "--key-file", str(path), stdin=b"x")
    assert "(forbidden)" in seb.refused("consume", "mine", "--key-file", str(path))
    assert "(forbidden)" in seb.refused("api-keys", "list", "--key-file", str(path))
    assert "(forbidden)" in seb.refused("status", "--key-file", str(path))


@pytest.mark.parametrize("grant", ["write:orders.*", "consume:a:b:c", ":orders", ""])
@pytest.mark.parametrize("command", ["create", "change"])
def test_a_wrong_grant_is_told_with_the_form_and_the_operations(seb, command, grant):
    told = seb.refused("api-keys", command, "x", "--grant", grant, code=78)
    assert "OPERATION[:TOPICS[:GROUPS]], such as consume:orders.*:lake" in told
    assert ", ".join(GRANT_OPERATIONS) in told


def test_the_help_names_the_operations(seb):
    assert ", ".join(GRANT_OPERATIONS) in seb.good("api-keys", "create", "--help").out


def test_revoking_asks(seb):
    made = seb.good("api-keys", "create", "asked", "--grant", "manage", "--json").json
    told = seb("api-keys", "revoke", made["api_key_id"], stdin=b"\n")
    assert told.code == 1
    assert "asked" in told.err
    assert seb.good("api-keys", "show", made["api_key_id"])
    seb.good("api-keys", "revoke", made["api_key_id"], stdin=b"y\n")


def test_what_is_named_is_changed_and_nothing_else(seb):
    made = seb.good(
        "api-keys", "create", "before", "--grant", "produce:a", "--expires", "90d",
        "--requests-per-second", "9", "--bytes-in-per-second", "1MiB", "--json",
    ).json  # fmt: skip
    assert made["quotas"] == {
        "requests_per_second": 9, "bytes_in_per_second": 1 << 20, "bytes_out_per_second": None,
    }  # fmt: skip
    key = made.pop("api_key_id")
    changed = seb.good(
        "api-keys", "change", key, "--name", "after", "--description", "for tests",
        "--grant", "consume:b:c", "--grant", "produce:b", "--expires", "never",
        "--requests-per-second", "none", "--bytes-out-per-second", "2KiB", "--disable", "--json",
    ).json  # fmt: skip
    assert (changed["name"], changed["description"]) == ("after", "for tests")
    assert [grant["topics"] for grant in changed["grants"]] == ["b", "b"]
    assert (changed["expires"], changed["disabled"]) == (None, True)
    assert changed["quotas"] == {
        "requests_per_second": None, "bytes_in_per_second": 1 << 20, "bytes_out_per_second": 2048,
    }  # fmt: skip
    enabled = seb.good("api-keys", "change", key, "--enable", "--json").json
    assert enabled == {**changed, "disabled": False}
    shown = seb.good("api-keys", "show", key).out
    assert "bytes-in-per-second 1MiB, bytes-out-per-second 2KiB" in shown


def test_a_disabled_key_is_listed_as_such_and_refused(seb):
    made = seb.good("api-keys", "create", "off", "--grant", "produce:a", "--json").json
    path = seb.folder / "off.key"
    path.write_text(made["secret"])
    seb.good("api-keys", "change", made["api_key_id"], "--disable")
    assert "(unauthenticated)" in seb.refused("topics", "list", "--key-file", str(path))
    row = next(r for r in seb.good("api-keys").rows if r[0] == made["api_key_id"])
    assert row[-2] == "disabled"


@pytest.mark.parametrize(("overlap", "old_works"), [([], True), (["--overlap", "0s"], False)])
def test_a_rotated_key_shows_its_new_secret_once(seb, overlap, old_works):
    made = seb.good("api-keys", "create", "turned", "--grant", "manage", "--json").json
    told = seb.good("api-keys", "rotate", made["api_key_id"], *overlap)
    assert "stored nowhere" in told.err
    secret = next(line.split()[1] for line in told.out.splitlines() if line.startswith("secret"))
    assert secret != made["secret"]
    path = seb.folder / "turned.key"
    for token, works in ((secret, True), (made["secret"], old_works)):
        path.write_text(token)
        assert (seb("topics", "list", "--key-file", str(path)).code == 0) is works
    shown = seb.good("api-keys", "show", made["api_key_id"]).out
    assert secret not in shown


def test_a_rotation_that_ends_a_secret_in_use_asks(seb):
    made = seb.good("api-keys", "create", "twice", "--grant", "manage", "--json").json
    seb.good("api-keys", "rotate", made["api_key_id"])  # its answer may have been lost
    told = seb("api-keys", "rotate", made["api_key_id"], stdin=b"\n")
    assert told.code == 1
    assert "the secret before the newest" in told.err
    path = seb.folder / "twice.key"
    path.write_text(made["secret"])
    seb.good("topics", "list", "--key-file", str(path))
    seb.good("api-keys", "rotate", made["api_key_id"], "--yes")
    assert "(unauthenticated)" in seb.refused("topics", "list", "--key-file", str(path))
    seb.good("api-keys", "rotate", made["api_key_id"], "--overlap", "0s")


def test_the_last_admin_key_stays(seb):
    admin = next(row[0] for row in seb.good("api-keys").rows if row[1] == "admin")
    assert "(last_admin_key)" in seb.refused("api-keys", "revoke", admin, "--yes")


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "x"],
        ["create", "x", "--grant", ""],
        ["create", "x", "--grant", "produce:"],
        ["create", "x", "--grant", "consume:a:b:c"],
        ["create", "x", "--grant", "admin", "--expires", "90"],
        ["create", "x", "--grant", "admin", "--expires", "999999999999999d"],
        ["show"],
        ["change", "x"],
        ["change", "x", "--requests-per-second", "9s"],
        ["change", "x", "--bytes-in-per-second", "1MB"],
        ["change", "x", "--expires", "soon"],
        ["change", "x", "--grant", ""],
        ["rotate"],
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_is_sent(seb, arguments):
    assert seb.refused("api-keys", *arguments, code=78)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "nope"], "api_key_not_found"),
        (["revoke", "nope", "--yes"], "api_key_not_found"),
        (["change", "nope", "--enable"], "api_key_not_found"),
        (["rotate", "nope"], "api_key_not_found"),
        (["rotate", "nope", "--overlap", "31d"], "bad_parameter"),
        (["rotate", "nope", "--overlap", "9"], "bad_parameter"),
        (["change", "nope", "--requests-per-second", "0"], "bad_json"),
        (["change", "nope", "--bytes-in-per-second", "0"], "bad_json"),
        (["create", "x", "--grant", "produce:a..b"], "bad_parameter"),
        (["create", "x", "--grant", "admin", "--expires", "0"], "bad_request"),
    ],
)
def test_a_refusal_is_one_sentence_with_its_code(seb, arguments, code):
    assert seb.refused("api-keys", *arguments).endswith(f"({code}).")
