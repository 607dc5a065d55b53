"""`seb topics …`"""

from __future__ import annotations

import pytest

from seb_appliance.formats.topic_settings import SETTINGS


def test_a_topic_is_made_listed_changed_shown_and_deleted(seb):
    assert seb.good("topics", "create", "a.one", "--linger", "20ms").out == "a.one: created\n"
    assert seb.good("topics", "list", "--pattern", "a.*").rows[0][:7] == [
        "a.one", "0", "0", "B", "0", "0", "20ms",
    ]  # fmt: skip
    changed = seb.good(
        "topics", "change", "a.one", "linger=default", "early_flush=on", "max_record_bytes=64KiB",
        "compression=none",
    )  # fmt: skip
    assert "64KiB  (set)" in changed.out
    assert "none  (set)" in changed.out
    shown = seb.good("topics", "show", "a.one", "--json").json
    given = {"early_flush": True, "max_record_bytes": 65536, "compression": "none"}
    assert shown["settings"] == dict.fromkeys(SETTINGS) | given
    assert seb.good("topics", "delete", "a.one", "--yes").out == "a.one deleted\n"
    assert seb.good("topics", "list", "--pattern", "a.*").out == "no topics\n"


def test_the_group_without_a_command_lists(seb):
    seb.good("topics", "create", "listed")
    assert seb.good("topics").out == seb.good("topics", "list").out
    assert seb.good("topics", "--json").json == seb.good("topics", "list", "--json").json
    assert "listed" in seb.good("topics").out


def test_numbers_stand_to_the_right(seb):
    seb.good("produce", "right.long-name", stdin=b"x\n" * 1234)
    seb.good("topics", "create", "right.b")
    lines = seb.good("topics", "list", "--pattern", "right.*").out.splitlines()
    assert lines[0].startswith("topic            records  ")
    assert lines[1].startswith("right.b                0  ")
    assert lines[2].startswith("right.long-name    1,234  ")


def test_a_topic_that_is_there_with_the_same_settings_is_fine(seb):
    seb.good("topics", "create", "twice", "--early-flush", "on")
    again = seb.good("topics", "create", "twice", "--early-flush", "on")
    assert "already exists" in again.out
    assert "(topic_differs)" in seb.refused("topics", "create", "twice")


def test_a_topic_is_trimmed_and_its_retention_set(seb):
    seb.good("produce", "trimmed", stdin=b"a\nb\nc\n")
    asked = ("topics", "trim", "trimmed", "--before", "2")
    assert "nothing was deleted" in seb.refused(*asked, stdin=b"yes\n")
    assert seb.good(*asked, "--yes").out == "the log of trimmed starts at 2\n"
    assert seb.good("consume", "trimmed").out == "c\n"
    assert "(offset_out_of_range)" in seb.refused(*asked[:3], "--before", "4", "--yes")
    shown = seb.good("topics", "change", "trimmed", "retention=7d", "retention_bytes=1GiB").out
    assert "7d  (set)" in shown
    assert "1GiB  (set)" in shown
    assert "unlimited" in seb.good("topics", "change", "trimmed", "retention=default").out


def test_a_topic_is_compacted_as_it_was_asked_for(seb):
    options = ("--cleanup", "compact", "--tombstone-retention", "7d", "--dirty-ratio", "0.2")
    seb.good("topics", "create", "compacted", *options)
    shown = seb.good("topics", "change", "compacted", "min_compaction_lag=1h").out
    assert "compact  (set)" in shown
    assert "7d  (set)" in shown
    assert "0.2  (set)" in shown
    assert "1h  (set)" in shown


def test_deleting_asks_for_the_name(seb):
    seb.good("topics", "create", "asked")
    assert "nothing was deleted" in seb.refused("topics", "delete", "asked", stdin=b"yes\n")
    assert "nothing was deleted" in seb.refused("topics", "delete", "asked")
    assert seb.good("topics", "show", "asked").code == 0
    told = seb.good("topics", "delete", "asked", "--json", stdin=b"asked\n")
    assert told.json == {"deleted": "asked"}
    assert "(topic_not_found)" in seb.refused("topics", "delete", "asked")


@pytest.mark.parametrize(
    "arguments",
    [
        ["change", "t"],
        ["change", "t", "linger"],
        ["change", "t", "linger=1ms", "linger=2ms"],
        ["change", "t", "lingering=1ms"],
        ["change", "t", "linger=10"],
        ["change", "t", "early_flush=yes"],
        ["change", "t", "compression=gzip"],
        ["change", "t", "cleanup=compacted"],
        ["change", "t", "dirty_ratio=nan"],
        ["create", "t", "--dirty-ratio", "half"],
        ["create", "t", "--max-record-bytes", "1MB"],
        ["create"],
        ["make", "t"],
        ["list", "--patern", "a"],
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_is_sent(seb, arguments):
    assert seb.refused("topics", *arguments, code=78)
    assert "(topic_not_found)" in seb.refused("topics", "show", "t")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "nope"], "topic_not_found"),
        (["change", "nope", "linger=1ms"], "topic_not_found"),
        (["create", "a..b"], "bad_name"),
        (["create", "a/b"], "bad_name"),
        (["create", ""], "bad_name"),
        (["create", "ümlaut"], "bad_name"),
        (["create", "x", "--linger", "1h"], "bad_request"),
        (["list", "--pattern", "***"], "bad_parameter"),
    ],
)
def test_a_refusal_is_one_sentence_with_its_code(seb, arguments, code):
    assert seb.refused("topics", *arguments).endswith(f"({code}).")


def test_a_fork_is_made_shown_and_found_again(seb):
    seb.good("topics", "create", "forked")
    seb.good("produce", "forked", stdin=b"a")
    made = seb.good("topics", "fork", "forked.x", "--from", "forked", "--at", "1")
    assert made.out == "forked.x: created, shares forked below offset 1\n"
    again = seb.good("topics", "fork", "forked.x", "--from", "forked")
    assert again.out == "forked.x: already exists, shares forked below offset 1\n"
    shown = seb.good("topics", "show", "forked.x").out
    assert "forked, at offset 1" in shown
    assert seb.good("topics", "show", "forked", "--json").json["forks"] == 1
    assert "(topic_not_found)" in seb.refused("topics", "fork", "y", "--from", "nowhere")
