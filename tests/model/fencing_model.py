"""The fencing protocol, checked in every interleaving: what holds, and what each rule is for.

`python -m tests.model.fencing_model` runs the small bounds that CI runs, with `--full` the large
ones (nine million states: a quarter of an hour, two gigabytes). Change these models before the
protocol is changed. tidying_model.py and upkeep_model.py stand on the log that the other two have
proved.
"""

from __future__ import annotations

import sys

from tests.model import upkeep_bounds
from tests.model.claims_model import ClaimsModel
from tests.model.create_only_model import CreateOnlyModel
from tests.model.explorer import Model, explore
from tests.model.standby_model import StandbyModel
from tests.model.tidying_model import TidyingModel

SMALL_STATES_MAX = 700_000
FULL_STATES_MAX = 10_000_000

_CALM = {"unclear": (0, 0), "outwaits": False}
_MERGING = {"appends": (1, 1), "jobs": (1, 1), "snapshots": (1, 1), "bad": 0}
_DAMAGED = {"appends": (3, 0), "jobs": (1, 0), "snapshots": (3, 0), "bad": 2}
_THREE = {"unclear": (0, 0, 0), "snapshots": (0, 0, 0), "outwaits": False}

SOUND: dict[str, Model] = {
    "A: two writers, snapshots, deletion": CreateOnlyModel(),
    "B: two writers, unclear answers": ClaimsModel(appends=(1, 1), outwaits=False),
    "B: a higher claim is outwaited": ClaimsModel(appends=(1, 1), unclear=(0, 1)),
    "B: a restart, snapshots, deletion": ClaimsModel(
        **_CALM, kept=1, starts=(1, 2), snapshots=(1, 1)
    ),
    "B: three writers, a snapshot": ClaimsModel(
        **{**_THREE, "snapshots": (0, 1, 0)}, kept=1, starts=(1, 1, 1), appends=(1, 0, 1)
    ),
    "A: segments, garbage, snapshots": TidyingModel(mode="A", **_MERGING),
    "B: segments, garbage, snapshots": TidyingModel(mode="B", **_MERGING),
    "A: damaged snapshots": TidyingModel(mode="A", **_DAMAGED),
    "B: a standby reads on": StandbyModel(writers=ClaimsModel(appends=(3, 2), **_CALM)),
    "B: a standby, unclear answers": StandbyModel(
        writers=ClaimsModel(appends=(1, 0), unclear=(1, 0), outwaits=False)
    ),
}

SOUND_AT_LENGTH: dict[str, Model] = {
    "A: three entries of the first": CreateOnlyModel(appends=(3, 1)),
    "A: the first restarts": CreateOnlyModel(starts=(2, 1), unclear=(0, 1)),
    "A: the second restarts": CreateOnlyModel(starts=(1, 2), unclear=(0, 1)),
    "A: three writers": CreateOnlyModel(
        starts=(1, 1, 1), appends=(2, 1, 1), snapshots=(2, 0, 0), unclear=(0, 0, 1)
    ),
    "B: the other one outwaits": ClaimsModel(appends=(1, 1), unclear=(1, 0)),
    "B: snapshots and unclear answers": ClaimsModel(
        kept=1, appends=(2, 1), snapshots=(1, 1), outwaits=False
    ),
    "B: snapshots and outwaiting": ClaimsModel(
        kept=1, appends=(1, 1), snapshots=(1, 1), unclear=(0, 1)
    ),
    "B: three writers, a restart": ClaimsModel(**_THREE, starts=(1, 1, 2), appends=(1, 0, 1)),
    "B: a standby, a higher claim is outwaited": StandbyModel(
        writers=ClaimsModel(appends=(1, 0), unclear=(0, 1))
    ),
    "A: segments are merged again": TidyingModel(mode="A", **{**_MERGING, "jobs": (2, 1)}),
    "B: segments are merged again": TidyingModel(mode="B", **{**_MERGING, "jobs": (2, 1)}),
}

BROKEN: dict[str, Model] = {
    "A without create-only PUT": CreateOnlyModel(creates_only_if_absent=False),
    "A without the LIST of snapshots after the epoch entry": CreateOnlyModel(
        appends=(3, 1), floor_checked_after_epoch=False
    ),
    "A with epoch entries deleted": CreateOnlyModel(epoch_entries_stay=False),
    "A stepping over a gap": CreateOnlyModel(steps_over_nothing=False),
    "A with deletion above the floor": CreateOnlyModel(deletes_only_to_floor=False),
    # The floor may then be the end of the log, and an epoch entry on a freed key look like its end.
    "A with one snapshot kept": CreateOnlyModel(kept=1),
    "B with a claim whose PUT is unclear": ClaimsModel(claim_until_definite=False),
    "B without the second LIST of snapshots": ClaimsModel(
        **_CALM, kept=1, snapshots=(1, 0), floor_checked_after_replay=False
    ),
    "B without the LIST of claims after the base": ClaimsModel(
        **{**_THREE, "snapshots": (0, 1, 0)},
        starts=(1, 1, 1),
        appends=(1, 0, 0),
        highest_after_base=False,
    ),
    "B without the LIST of claims after each PUT": ClaimsModel(highest_after_put=False),
    "B with a snapshot of an unchecked entry": ClaimsModel(
        kept=1, snapshots=(1, 1), snapshots_hold_checked_only=False
    ),
    "B from local state that is not on the chain": ClaimsModel(
        **_THREE, starts=(1, 1, 2), appends=(1, 0, 0), begins_on_the_chain_only=False
    ),
    "B with deletion above the floor": ClaimsModel(snapshots=(2, 0), deletes_only_to_floor=False),
    # In mode A a stray is harmless to delete: what names it can never land once we are fenced.
    "B with objects deleted that no entry condemned": TidyingModel(
        mode="B", **_MERGING, deletes_condemned_only=False
    ),
    "A with garbage decided on while a switch is under way": TidyingModel(
        mode="A", **_MERGING, settles_before_deciding=False
    ),
    "A with strays condemned during a job, and referred to again": TidyingModel(
        mode="A", **_MERGING, strays_while_no_job=False, refuses_condemned=False
    ),
    "A with entries deleted that are not tidied": TidyingModel(
        mode="A", **_MERGING, entries_when_tidied=False
    ),
    "A with tidied entries deleted above the floor": TidyingModel(
        mode="A", **_MERGING, entries_to_floor=False
    ),
    "B with a switch applied before its claims check": TidyingModel(
        mode="B", **{**_MERGING, "jobs": (2, 1)}, checks_after_put=False
    ),
    "A with older snapshots deleted before the new one was read back": TidyingModel(
        mode="A", **_DAMAGED, reads_back_snapshots=False
    ),
    "A with damaged snapshots left for the floor to count": TidyingModel(
        mode="A", **_DAMAGED, removes_damaged_snapshots=False
    ),
    "B with a standby that serves what may be cut off": StandbyModel(
        writers=ClaimsModel(appends=(1, 0), **_CALM), serves_settled_only=False
    ),
    "B with a standby that looks for claims before it reads": StandbyModel(
        writers=ClaimsModel(appends=(1, 0), **_CALM), looks_after_it_has_read=False
    ),
}


def main(arguments: list[str]) -> int:
    """Print an outcome for each model; 1 if one is not as it should be."""
    full = "--full" in arguments
    wrong = 0
    sound = {**SOUND, **upkeep_bounds.SOUND, **upkeep_bounds.SOUND_LARGER}
    at_length = {**SOUND_AT_LENGTH, **upkeep_bounds.SOUND_AT_LENGTH}
    broken = {**BROKEN, **upkeep_bounds.BROKEN, **upkeep_bounds.BROKEN_LARGER}
    for title, model in {**sound, **(at_length if full else {}), **broken}.items():
        states_max = FULL_STATES_MAX if title in at_length else SMALL_STATES_MAX
        outcome = explore(model, states_max=states_max, say=print if full else None)
        as_expected = bool(outcome.violation) == (title in broken)
        wrong += not as_expected
        print(f"{'ok ' if as_expected else 'BAD'} {title}: {outcome}", flush=True)
        for step in () if as_expected else outcome.path:
            print(f"      {step}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
