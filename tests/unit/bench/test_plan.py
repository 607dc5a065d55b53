"""What a plan of a measurement says of itself."""

from __future__ import annotations

from seb_appliance.bench.plan import Plan


def test_a_bucket_in_memory_is_made_ready_for_what_the_plan_stores() -> None:
    paced = Plan(workload="e2e", rate=3_000, record_bytes=1_024, duration_s=9.0, warm_up_s=1.0)
    assert paced.stored_bytes_max == 10 * 3_000 * 1_024
    assert Plan(workload="produce").stored_bytes_max > paced.stored_bytes_max
    assert Plan(workload="consume").stored_bytes_max == 0
