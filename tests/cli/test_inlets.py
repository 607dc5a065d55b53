"""`seb inlets …`"""

from __future__ import annotations

import hmac
import urllib.error
import urllib.request

import pytest


def deliver(url: str, secret: str, body: bytes = b"{}", name: str = "d") -> int:
    """As GitHub does."""
    digest = hmac.digest(secret.encode(), body, "sha256").hex()
    headers = {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Delivery": name}
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def url_of(told) -> str:
    return next(line.split()[1] for line in told.out.splitlines() if line.startswith("url"))


def secret_of(told) -> str:
    return next(line.split()[1] for line in told.out.splitlines() if line.startswith("secret  "))


def test_a_new_inlet_has_a_url_and_a_random_secret_that_work(seb):
    told = seb.good("inlets", "set", "shop", "--topic", "shop", "--scheme", "github")
    assert "not shown again" in told.err
    assert deliver(url_of(told), secret_of(told)) == 200
    assert deliver(url_of(told), "another", name="e") == 401
    shown = seb.good("inlets", "show", "shop")
    assert "stored" in shown.out
    assert "the signature does not fit" in shown.out
    assert secret_of(told) not in shown.out
    assert seb.good("inlets").rows[0][:4] == ["shop", "shop", "github", "value"]


def test_a_change_keeps_what_is_not_named(seb):
    secret = seb.folder / "secret"
    secret.write_text("from a file\n")
    told = seb.good(
        "inlets", "set", "kept", "--topic", "kept", "--scheme", "hmac", "--header", "X-Sign",
        "--prefix", "v=", "--key", "/id", "--keep-headers", "A, B", "--secret-file", str(secret),
    )  # fmt: skip
    assert "secret  " not in told.out
    changed = seb.good("inlets", "set", "kept", "--key", "none", "--body", "items", "--json").json
    assert changed["settings"] == {
        "topic": "kept",
        "verify": {"scheme": "hmac", "header": "X-Sign", "prefix": "v="},
        "body": "items",
        "keep_headers": ["A", "B"],
    }
    assert changed["secrets"] == 1


def test_a_rotated_secret_is_valid_beside_the_previous_one(seb):
    first = seb.good("inlets", "set", "turned", "--topic", "turned", "--scheme", "github")
    second = seb.good("inlets", "set", "turned", "--rotate")
    url, secrets = url_of(first), [secret_of(first), secret_of(second)]
    assert [deliver(url, one, name=one) for one in secrets] == [200, 200]
    third = seb.good("inlets", "set", "turned", "--rotate")
    secrets.append(secret_of(third))
    assert [deliver(url, one, name=one + "2") for one in secrets] == [401, 200, 200]
    both = ("inlets", "set", "turned", "--end-previous")
    assert "neither --rotate" in seb.refused(*both, "--rotate", code=78)
    assert "secret" not in seb.good(*both, "--json").json
    assert [deliver(url, one, name=one + "3") for one in secrets] == [401, 401, 200]


@pytest.mark.parametrize("scheme", ["path", "standard", "svix", "basic"])
def test_the_random_secret_is_one_of_the_scheme(seb, scheme):
    told = seb.good("inlets", "set", f"of-{scheme}", "--topic", "any", "--scheme", scheme)
    assert secret_of(told)


def test_what_cannot_be_is_refused_with_a_sentence(seb):
    assert "--topic and --scheme" in seb.refused("inlets", "set", "new", code=78)
    told = seb.refused("inlets", "set", "new", "--topic", "t", "--scheme", "gitlab", code=78)
    assert "github" in told
    assert "no inlet" in seb.refused("inlets", "show", "nothing")
    missing = str(seb.folder / "missing")
    wanted = ("--topic", "t", "--scheme", "github", "--secret-file", missing)
    assert missing in seb.refused("inlets", "set", "new", *wanted, code=78)


def test_deleting_asks_and_the_url_takes_nothing_more(seb):
    told = seb.good("inlets", "set", "gone", "--topic", "gone", "--scheme", "github")
    assert seb("inlets", "delete", "gone", stdin=b"\n").code == 1
    seb.good("inlets", "delete", "gone", "--yes")
    assert deliver(url_of(told), secret_of(told)) == 401
