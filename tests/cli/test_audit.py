"""`seb audit`"""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def done(seb):
    """What was done to a topic, oldest first."""
    name = "audited"
    seb.good("topics", "create", name, "--linger", "1ms")
    seb.good("topics", "change", name, "linger=2ms")
    seb.good("topics", "delete", name, "--yes")
    return name


def test_who_did_what_is_told_with_what_changed(seb, done):
    lines = seb.good("audit", "--subject", done, "--max", "3").out.splitlines()
    assert lines[0].split() == ["number", "at", "actor", "from", "action", "subject", "change"]
    assert ["topic_deleted" in lines[1], "topic_changed" in lines[2], "topic_created" in lines[3]]
    assert 'settings: {"linger_ms": 1' in lines[2]
    assert '→ {"linger_ms": 2' in lines[2]
    assert '"linger_ms": 1' in lines[3]
    assert "127.0.0.1" in lines[1]


def test_programs_get_what_the_api_tells(seb, done):
    found = seb.good("audit", "--subject", done, "--json").json
    newest = found["audit"][0]
    assert (newest["action"], newest["after"]) == ("topic_deleted", None)
    me = newest["actor"]
    assert me
    assert seb.good("audit", "--actor", me, "--json").json["audit"][0] == newest
    assert seb.good("audit", "--actor", "nobody", "--json").json["audit"] == []
    assert seb.good("audit", "--actor", "nobody").out == "nothing was done\n"


def test_pages_follow_one_another(seb, done, monkeypatch):
    every = seb.good("audit", "--json", "--max", "10000").json
    assert [one["number"] for one in every["audit"]] == list(range(len(every["audit"]), 0, -1))
    assert every["next_before"] is None
    monkeypatch.setattr(sys.modules["seb_appliance.cli.commands.status"], "PAGE", 2)
    assert seb.good("audit", "--json", "--max", "10000").json == every
    three = seb.good("audit", "--json", "--max", "3").json
    assert three["audit"] == every["audit"][:3]
    older = seb.good("audit", "--json", "--before", str(three["next_before"])).json
    assert older["audit"] == every["audit"][3:]


def test_it_needs_an_admin_key(seb):
    made = seb.good("api-keys", "create", "poor", "--grant", "manage", "--json").json
    path = seb.folder / "poor.key"
    path.write_text(made["secret"])
    assert "(forbidden)" in seb.refused("audit", "--key-file", str(path))


@pytest.mark.parametrize("flags", [["--max", "0"], ["--before", "0"], ["--max", "many"], ["x"]])
def test_what_cannot_be_meant_is_told_before_anything_is_sent(seb, flags):
    assert seb.refused("audit", *flags, code=78)
