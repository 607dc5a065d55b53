"""Named points at which a test can kill this process (docs/TESTING.md lists K1 to K20).

`SEB_FAIL=K6:kill:3` kills the process with SIGKILL when it reaches K6 for the third time. Only the
settings read the environment; everything else is handed a `Failpoints`. Nothing in the HTTP API
can set one.
"""

from __future__ import annotations

import os
import signal

from seb_appliance.errors import ConfigurationError


class Failpoints:
    """Counts down to one point; `reach` is a no-op for all others."""

    def __init__(self, rule: str = "") -> None:
        self._point = ""
        self._passes_left = 0
        if not rule:
            return
        point, action, passes = [*rule.split(":"), "1"][:3] if ":" in rule else (rule, "", "")
        if action != "kill" or not passes.isdigit() or int(passes) < 1:
            raise ConfigurationError(f"SEB_FAIL={rule!r} is not POINT:kill[:PASS]")
        self._point, self._passes_left = point, int(passes)

    def armed(self, point: str) -> bool:
        """Whether the next `reach(point)` kills: for points that need a half-done action first."""
        return self._point == point and self._passes_left == 1

    def reach(self, point: str) -> None:
        if point != self._point:
            return
        self._passes_left -= 1
        if self._passes_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


NO_FAILPOINTS = Failpoints()
