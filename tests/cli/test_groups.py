"""`seb groups …`"""

from __future__ import annotations

import pytest

from seb_appliance import limits


@pytest.fixture
def group(seb, request):
    """A group of the test's own that stands at 2 of 5 records of a topic of the same name."""
    name = request.node.name.replace("[", "-").replace("]", "")[:100]
    seb.good("produce", name, stdin=b"1\n2\n3\n4\n5\n")
    seb.good("groups", "commit", name, f"{name}=2")
    return name


def test_a_group_is_listed_with_its_lag(seb, group):
    row = next(row for row in seb.good("groups").rows if row[0] == group)
    assert row[1:3] == ["1", "3"]
    listed = seb.good("groups", "list", "--json").json["groups"]
    assert next(g for g in listed if g["group"] == group)["lag_records"] == 3


def test_all_pages_are_listed(seb, group, monkeypatch):
    for number in range(5):
        seb.good("groups", "commit", f"paged-{number}", f"{group}=1")
    monkeypatch.setattr(limits, "GROUPS_PER_PAGE_DEFAULT", 2)
    names = [row[0] for row in seb.good("groups").rows]
    assert names == sorted(names)
    assert {f"paged-{number}" for number in range(5)} <= set(names)


def test_a_group_is_shown_by_topic(seb, group):
    shown = seb.good("groups", "show", group).out
    assert "3 records" in shown
    assert [group, "2", "5", "3"] in [line.split()[:4] for line in shown.splitlines()]
    assert seb.good("groups", "show", group, "--json").json["topics"][0]["committed_offset"] == 2


def test_a_commit_goes_forward_and_back_only_when_told(seb, group):
    assert seb.good("groups", "commit", group, f"{group}=4").rows == [[group, "4"]]
    assert "(commit_backward)" in seb.refused("groups", "commit", group, f"{group}=3")
    seb.good("groups", "commit", group, f"{group}=3", "--allow-backward")
    assert "(commit_beyond_end)" in seb.refused("groups", "commit", group, f"{group}=6")
    assert "(stale_generation)" in seb.refused(
        "groups", "commit", group, f"{group}=4", "--generation", "1"
    )
    answer = seb.good("groups", "commit", group, f"{group}=5", "--json").json
    assert answer["offsets"] == {group: 5}


@pytest.mark.parametrize(
    ("flags", "after"),
    [
        (["--to", "earliest"], "0"),
        (["--to", "latest"], "5"),
        (["--to", "4"], "4"),
        (["--to", "-1"], "4"),
        (["--to", "@2020-01-01T00:00:00Z"], "0"),
        (["--shift", "-1"], "1"),
        (["--shift", "2", "--topics", "*"], "4"),
    ],
)
def test_a_reset_shows_before_and_after_and_asks(seb, group, flags, after):
    moves = str(int(after) - 2)
    plan = seb.good("groups", "reset", group, *flags, "--dry-run")
    assert plan.rows == [[group, "2", after, moves]]
    told = seb("groups", "reset", group, *flags, stdin=b"n\n")
    assert (told.code, told.raw) == (1, b"")
    assert [group, "2", after, moves] in [line.split() for line in told.err.splitlines()]
    assert committed(seb, group) == 2
    assert seb.good("groups", "reset", group, *flags, stdin=b"y\n").rows == plan.rows
    assert committed(seb, group) == int(after)


def committed(seb, group: str) -> int:
    return seb.good("groups", "show", group, "--json").json["topics"][0]["committed_offset"]


def test_a_reset_for_programs_asks_nothing(seb, group):
    answer = seb.good("groups", "reset", group, "--to", "earliest", "--yes", "--json").json
    assert [(row["before"], row["after"]) for row in answer["topics"]] == [(2, 0)]
    dry = seb.good("groups", "reset", group, "--to", "latest", "--dry-run", "--json").json
    assert dry["dry_run"] is True
    assert committed(seb, group) == 0


def test_deleting_asks_for_the_name(seb, group):
    assert "nothing was deleted" in seb.refused("groups", "delete", group, stdin=b"y\n")
    assert seb.good("groups", "delete", group, stdin=group.encode()).out == f"{group} deleted\n"
    assert "(group_not_found)" in seb.refused("groups", "show", group)
    assert "(group_not_found)" in seb.refused("groups", "delete", group, "--yes")


@pytest.mark.parametrize(
    "arguments",
    [
        ["commit", "g"],
        ["commit", "g", "t"],
        ["commit", "g", "=1"],
        ["commit", "g", "t=-1"],
        ["commit", "g", "t=1", "t=2"],
        ["commit", "g", "t=1", "--generation", "0"],
        ["reset", "g"],
        ["reset", "g", "--to", "1", "--shift", "1"],
        ["reset", "g", "--shift", "one"],
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_is_sent(seb, arguments):
    assert seb.refused("groups", *arguments, code=78)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "nope"], "group_not_found"),
        (["commit", "g", "nope=1"], "topic_not_found"),
        (["commit", "g..g", "nope=1"], "bad_name"),
        (["reset", "nope", "--to", "earliest"], "group_not_found"),
        (["reset", "nope", "--to", "soon"], "bad_parameter"),
    ],
)
def test_a_refusal_is_one_sentence_with_its_code(seb, arguments, code):
    assert seb.refused("groups", *arguments).endswith(f"({code}).")
