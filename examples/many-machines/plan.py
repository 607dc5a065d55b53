"""The plan for many appliances: arithmetic, and a simulated day. No appliance or Spark is started.

    python examples/many-machines/plan.py [--appliances 100] [--terabytes-a-day 10] [--batch-s 5]

Measured elsewhere (docs/spark.md, Performance): rows that a core reads. Assumed: all else below.
"""

from __future__ import annotations

import argparse
import random

DAY_S = 86_400
RECORD_BYTES = 1_000
CORE_ROWS_PER_S = 500_000  # of 100 bytes; measured: 1.14 M rows/s on two cores, without a join
CORE_BYTES_PER_S = CORE_ROWS_PER_S * 100
WORK = 5  # how much longer a batch takes that also joins, writes and produces
PEAK = 3  # the busiest minutes, against the mean
STATE_S, STATE_BYTES = 600, 200  # how long, and how many bytes of a record, wait for the partner
JOB_GB = 1.5  # memory of a driver with its two planners, and of an executor of one core
MACHINE_CORES = 8
BATCH_FIXED_S = 2.0
LOST_S, JOB_RESTART_S = 60, 45  # an appliance comes back; a job goes on elsewhere
LOST_A_DAY = 2  # of each appliance and of each machine


def simulated(pair_bytes_per_s: float, batch_s: float, seed: int) -> tuple[list[float], int]:
    """A day of one pair of appliances: the age in s of the oldest record in each micro-batch, and
    how many batches there were. Every record that arrives is in one of them."""
    chance = random.Random(seed)
    lost = sorted((chance.uniform(0, DAY_S), LOST_S) for _ in range(2 * LOST_A_DAY))
    lost += [(chance.uniform(0, DAY_S), JOB_RESTART_S) for _ in range(LOST_A_DAY)]
    lost.sort()
    now = read_to = 0.0
    ages = []
    while now < DAY_S:
        if lost and lost[0][0] <= now:  # the batch under way is done again, later
            now += lost.pop(0)[1]
        peak = PEAK if now % DAY_S < DAY_S / 24 else 1.0
        waiting = (now - read_to) * pair_bytes_per_s * peak
        ended = now + BATCH_FIXED_S + waiting * WORK / CORE_BYTES_PER_S
        ages.append(ended - read_to)
        read_to, now = now, max(ended, now + batch_s)
    return sorted(ages), len(ages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--appliances", type=int, default=100)
    parser.add_argument("--terabytes-a-day", type=float, default=10.0)
    parser.add_argument("--batch-s", type=float, default=5.0, help="from batch to batch")
    given = parser.parse_args()
    pairs = given.appliances // 2
    total = given.terabytes_a_day * 1e12 / DAY_S
    pair = total / pairs
    busy = pair * PEAK * WORK / CORE_BYTES_PER_S
    ages: list[float] = []
    batches = 0
    for seed in range(pairs):
        found, count = simulated(pair, given.batch_s, seed)
        ages += found
        batches += count
    ages.sort()
    state_gb = total * PEAK * STATE_S * STATE_BYTES / RECORD_BYTES / 1e9
    # Of a batch, an appliance sees: is there more, which segments, a read, and the group's commit.
    requests = 4 * batches / pairs / DAY_S
    for name, value in {
        "an appliance takes": f"{pair / 2e6:.2f} MB/s, {pair / 2 / RECORD_BYTES:,.0f} records/s",
        "jobs": f"{pairs}: a pair of appliances each, one core",
        "a core is busy at the peak": f"{busy:.0%}",
        "machines": f"{-(-pairs // MACHINE_CORES)} of {MACHINE_CORES} cores",
        "memory of drivers and executors": f"{pairs * 2 * JOB_GB:,.0f} GB",
        "what waits for its partner": f"{state_gb:,.0f} GB",
        "connections to an appliance": "4: two planners' and two tasks' at most",
        "requests to an appliance": f"{requests:.1f}/s",
        "simulated: oldest record, median": f"{ages[len(ages) // 2]:.0f} s",
        "simulated: oldest record, 99.9 %": f"{ages[len(ages) * 999 // 1000]:.0f} s",
        "simulated: oldest record, worst": f"{ages[-1]:.0f} s",
    }.items():
        print(f"{name:34} {value}")


if __name__ == "__main__":
    main()
