"""Compact a huge topic on the cluster: of each record key the newest record stays, at its offset.

    spark-submit compact_topic.py --url http://seb:51313 --token-file seb.key --topic customers

Reads the topic's segments from the bucket, stores new ones, and hands them over to the appliance,
which checks them record by record and puts them in force. What is appended meanwhile is not
touched, and a run that dies has changed nothing. The topic's cleanup has to be compact, and the API
key needs the grants to consume and to manage the topic. Exit code 3: the topic was changed while
the job ran, most likely by another run of it: nothing is wrong, and run again it is done.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress

from pyspark_seb.errors import ApplianceError, ConflictError
from pyspark_seb.jobs.frame import Job, Result, Run
from pyspark_seb.jobs.steps import compacting
from pyspark_seb.jobs.steps.compacting import Access


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", required=True, help="the topic to compact")
    parser.add_argument(
        "--wait",
        type=float,
        default=3600.0,
        help="seconds to wait for the appliance to check what was made (default: 3600)",
    )
    parser.add_argument("--tasks", type=int, default=1, help="at least so many tasks read")


def work(run: Run) -> Result:
    """Raises ApplianceError, ConflictError, and what Spark makes of them in a task."""
    asked = run.asked
    access = Access(asked.url, asked.token_file)
    run.step("asking the appliance for a range")
    with run.appliance() as appliance:
        wanted = compacting.begin(appliance, asked.topic)
        figures = {
            "topic": asked.topic,
            "base_offset": wanted.base_offset,
            "last_offset": wanted.last_offset,
            "dirty_bytes": wanted.dirty_bytes,
        }
        try:
            if not wanted.dirty_bytes:
                return Result(f"{asked.topic}: all of it was compacted before.", figures)
            if asked.dry_run:
                sentence = f"{wanted.dirty_bytes} bytes of {asked.topic} would be compacted."
                return Result(sentence, figures)
            with compacting.kept_alive(access, wanted):
                names = compacting.compact(run, access, wanted)
                run.step("handing the segments over")
                compacting.hand_over(appliance, wanted, names)
                run.step("waiting for the appliance to check the segments")
                outcome = compacting.outcome(appliance, wanted, asked.wait)
        finally:
            with suppress(ApplianceError):  # the appliance forgets it in an hour
                appliance.request("DELETE", wanted.path)
    if outcome.state == "refused":
        raise ConflictError(f"the appliance refused the segments: {outcome.reason}")
    sentence = f"{asked.topic}: {outcome.state.replace('_', ' ')}. {outcome.reason}".strip()
    return Result(sentence, figures, 0 if outcome.state == "in_force" else 1)


JOB = Job("compact_topic", __doc__, add_arguments, work)

if __name__ == "__main__":
    sys.exit(JOB.main())
