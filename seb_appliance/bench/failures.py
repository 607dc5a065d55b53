"""Why a measurement came to nothing."""

from __future__ import annotations


class BenchError(Exception):
    """The sentence is for the terminal. `reachable`: whether somebody answered at all."""

    def __init__(self, sentence: str, *, reachable: bool = True) -> None:
        super().__init__(sentence)
        self.reachable = reachable
