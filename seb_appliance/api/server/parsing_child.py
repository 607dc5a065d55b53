"""The child process that reads large bodies: see parsing.py. It ends when its pipe is closed."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Final

from seb_appliance.api.server.parsing import FRAME

NICE: Final = 5


def main() -> None:
    os.nice(NICE)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(FRAME.size)) == FRAME.size:
        pickled_bytes, body_bytes = FRAME.unpack(head)
        function, args, kwargs = pickle.loads(source.read(pickled_bytes))  # noqa: S301 - our parent
        body = source.read(body_bytes)
        try:
            answer = (True, function(body, *args, **kwargs))
        except Exception as error:  # whatever it is: the parent raises it
            answer = (False, error)
        pickled = pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            sink.write(FRAME.pack(len(pickled), 0))
            sink.write(pickled)
            sink.flush()
        except BrokenPipeError:
            os._exit(0)  # the parent was killed; Python would complain about what it cannot flush


if __name__ == "__main__":
    main()
