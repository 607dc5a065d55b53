"""The whole broker on one seeded event loop: what is promised holds, whatever goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutations import MUTATIONS, found_by
from tests.simulation.parts import in_parts
from tests.simulation.seeds import KINDS, Kind, run_seed

ROOT = Path(__file__).parents[2]
SEEDS: dict[Kind, int] = {
    "plain": int(os.environ.get("TEST_SEEDS", "250")),
    "sqlite": int(os.environ.get("TEST_SQLITE_SEEDS", "30")),
    "streams": int(os.environ.get("TEST_STREAM_SEEDS", "100")),
    "doors": int(os.environ.get("TEST_DOORS_SEEDS", "10")),
}
SEEDS_TO_FIND = 1_200
# Bugs that few seeds find, or those of slow seeds, and where to look first.
FIRST_SEEDS = {
    "a_start_believes_its_machine": 26,
    "answers_waited_for_a_while_only": 42,
    "any_412_is_another_writer": 37,
    "created_follows_the_wall_clock": 94,
    "entries_that_came_meanwhile_forgotten": 170,
    "fork_boundary_ignored": 42,
    "half_of_a_file_written_anew": 157,
    "imported_files_not_looked_for": 14,
    "lost_transactions_not_noticed": 65,
    "removal_told_before_it_is_stored": 14,
    "repeated_rotation_ends_a_secret": 33,
    "retention_follows_the_wall_clock": 143,
    "sealed_entry_given_up": 37,
    "sessions_outlive_their_users": 2,
    "standby_serves_what_is_not_settled": 86,
    "stream_deleted_meanwhile_was_never_there": 53,
    "table_commits_not_numbered": 57,
    "tables_taken_for_foreign_files": 4,
    "tombstones_dropped_early": 87,
    "writer_id_of_the_directory": 99,
}
HASH_SEEDS: dict[Kind, list[str]] = {
    "plain": ["0", "4711"],
    "sqlite": ["4711"],
    "streams": ["4711"],
    "doors": ["4711"],
}


def test_what_is_promised_holds_in_a_few_seeds() -> None:
    for seed in range(5):
        assert run_seed(seed).violations == ()


def test_a_seed_replays_bit_for_bit() -> None:
    first, again = (run_seed(7, keep_trace=True) for _ in range(2))
    assert len(first.trace) > 100
    assert first == again


def test_another_seed_is_another_history() -> None:
    assert run_seed(7).digest != run_seed(8).digest


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_replays_bit_for_bit_in_another_process_whatever_its_hashes(kind: Kind) -> None:
    told = {
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--class", kind, "--seed", "7"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in HASH_SEEDS[kind]
    }
    assert len(told) == 1  # of fresh processes: this one has run other tests


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_promised_holds_in_many_seeds(kind: Kind) -> None:
    failed = {
        outcome.seed: outcome.violations
        for outcomes, _ in in_parts(range(SEEDS[kind]), jobs=2, kind=kind)
        for outcome in outcomes
        if outcome.violations
    }
    assert not failed, f"replay one: python -m tests.simulation --class {kind} --trace --seed …"


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_planted_bug_is_found(name: str) -> None:
    first = FIRST_SEEDS.get(name, 0)
    found = found_by(name, range(first, first + SEEDS_TO_FIND)) or found_by(name, range(first))
    assert found is not None
