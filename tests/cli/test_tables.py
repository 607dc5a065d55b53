"""`seb tables …`"""

from __future__ import annotations

import json
import shlex


def test_the_command_that_a_suggestion_ends_with_runs_nothing_that_a_producer_wrote(seb):
    seb.good("topics", "create", "named")
    members = {"a'; touch pwned; echo '": 1, "bell\x9b": 2, "over\u202e": 3, "plain": 4}
    seb.good("produce", "named", stdin=json.dumps(members).encode())
    told = seb.good("tables", "suggest", "named").err
    command = shlex.split(told)
    assert command[:4] == ["seb", "topics", "change", "named"]
    assert len(command) == 5
    assert "touch pwned" in command[4]
    assert told.strip().isprintable()
    assert command[4].endswith(", plain:long, _rest")
