"""The event loop's delay is noticed."""

from __future__ import annotations

from seb_appliance.ops.host.runtime import LoopProbe
from seb_appliance.tasks import Supervisor
from tests.support.fakes import FakeClock


async def test_a_late_loop_is_noted_and_forgotten_after_a_minute():
    clock = FakeClock()
    probe = LoopProbe(clock)
    probe.start(Supervisor(clock))
    await clock.advance(1.0)
    assert (probe.worst_s, sum(probe.delays.counts)) == (0.0, 1)
    clock.now_s += 1.7  # nothing ran meanwhile
    await clock.advance(0)
    assert round(probe.worst_s, 3) == 0.7
    await clock.advance(61)
    assert probe.worst_s == 0.0
    assert round(probe.delays.sum_s, 3) == 0.7
    await probe.close()
