"""Every decoder takes what it is given, or refuses it as it promises (target.py).

`python -m tests.fuzz` runs more of it, coverage-guided.
"""

from __future__ import annotations

import itertools
import resource
from contextlib import closing
from pathlib import Path

import pytest

from seb_appliance import limits
from tests.fuzz import target as fuzz_target
from tests.fuzz.campaign import Campaign, atheris_is_installed, corpus_of
from tests.fuzz.mutating import mutations
from tests.fuzz.registry import TARGETS
from tests.fuzz.target import Finding, Target

QUICK, SLOW, GUIDED = 100, 2_000, 2_000


def broken(data: bytes) -> None:
    if b"b" in data:
        raise ZeroDivisionError


BROKEN = Target("broken", broken, (b"aaaa",), (b"b",))


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_known_is_decoded_or_refused(name: str) -> None:
    target = TARGETS[name]
    known = corpus_of(target)
    for data in (*known, *itertools.islice(mutations(known, target.words, 1), QUICK)):
        target.execute(data)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_has_an_input_that_is_taken(name: str) -> None:
    target = TARGETS[name]
    taken = []
    for data in target.seeds:
        try:
            target.check(data)
        except target.refusals:
            continue
        taken.append(data)
    assert taken


def test_what_breaks_its_promise_is_found() -> None:
    with pytest.raises(Finding, match="ZeroDivisionError"):
        BROKEN.execute(b"aab")


def test_what_takes_too_much_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice what the process had at most so far, in whatever order tests run."""
    monkeypatch.setattr(fuzz_target, "MEMORY_BYTES_MAX", limits.MIB)
    monkeypatch.setattr(fuzz_target, "SECONDS_MAX", 60.0)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * limits.KIB

    def take(data: bytes) -> None:
        data * most

    greedy = Target("greedy", take, (b"a",))
    with pytest.raises(Finding, match="MiB"):
        greedy.execute(b"a")


def test_what_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_target, "SECONDS_MAX", 0.001)

    def count(data: bytes) -> None:
        sum(range(10**6))

    with pytest.raises(Finding, match="took"):
        Target("slow", count, (b"a",)).execute(b"a")


def test_a_campaign_keeps_what_it_found_and_goes_on_where_it_was(tmp_path: Path) -> None:
    target = TARGETS["positions"]
    assert Campaign(tmp_path, seed=1, guided=False).run(target, 50).executions == 50
    assert Campaign(tmp_path, seed=1, guided=False).run(target, 80).executions == 80
    done = Campaign(tmp_path, seed=1, guided=False).run(BROKEN, 1_000)
    assert len(done.findings) == 1
    assert [path.name[:6] for path in (tmp_path / "broken").iterdir()] == ["crash-"]


@pytest.mark.slow
def test_many_more_changed_inputs_are_decoded_or_refused(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, seed=1, guided=False)
    found = {
        name: campaign.run(target, SLOW // 10 if target.is_slow else SLOW).findings
        for name, target in TARGETS.items()
    }
    assert not {name: findings for name, findings in found.items() if findings}


@pytest.mark.slow
@pytest.mark.skipif(not atheris_is_installed(), reason="atheris is not for this Python")
def test_coverage_guides_where_it_can(tmp_path: Path) -> None:
    with closing(Campaign(tmp_path, seed=1, guided=True)) as campaign:
        done = campaign.run(TARGETS["json"], GUIDED)
    assert (done.executions >= GUIDED, done.findings) == (True, [])
    assert len(list((tmp_path / "json").iterdir())) >= len(set(corpus_of(TARGETS["json"])))
