"""What an operator was told of one thing that it changes: who must know it, and since when."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.process import Process


@dataclass
class Known:
    """`version`: how many changes were acknowledged. `unsure`: an attempt without an answer may
    yet change it. `by`, `epoch`: who acknowledged the newest change. `changing`: one is on its
    way."""

    version: int = 0
    unsure: bool = False
    by: str = ""
    epoch: int = 0
    changing: bool = False

    def acknowledged(self, process: Process) -> None:
        self.by, self.epoch = process.name, process.epoch
        self.version += 1

    def is_known_to(self, process: Process) -> bool:
        """Who was taken over may not know what came after; a standby may be behind."""
        later = self.epoch < process.epoch and not process.standby
        return bool(self.by) and (self.by == process.name or later)

    @property
    def is_settled(self) -> bool:
        return not self.unsure and not self.changing
