"""What a setting is: its name, kind, default, range and meaning, and how its text is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seb_appliance.quantities import READERS, format_value, switch

Kind = Literal["text", "path", "number", "switch", "duration", "size"]
Value = str | Path | int | bool | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `range` is inclusive, in ms for durations and in bytes for sizes.

    A `secret` is never shown and has no flag, because process lists show flags. A `flag_only`
    setting applies to one start: no variable, no file. `variable_only` settings are for tests.
    `client` settings are for commands that send HTTP requests to an appliance (`seb topics`, …).
    """

    name: str
    kind: Kind
    default: Value
    help: str
    range: tuple[int, int] | None = None
    choices: tuple[str, ...] = ()
    default_words: str = ""  # what None means
    secret: bool = False
    flag_only: bool = False
    variable_only: bool = False
    client: bool = False
    word: str = ""  # accepted in place of a value

    @property
    def attribute(self) -> str:
        """Its field in `Settings`: durations carry their unit there."""
        return f"{self.name}_ms" if self.kind == "duration" else self.name

    @property
    def has_flag(self) -> bool:
        return not (self.secret or self.variable_only)

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "SEB_" + self.name.upper()

    def parse(self, text: str) -> Value:
        """The value that `text` means. Raises ValueError with half a sentence."""
        if self.word and text == self.word:
            return text
        if self.kind == "switch":
            return switch(text, lenient=True)
        if self.kind in ("text", "path"):
            return self._checked_text(text)
        number: int = READERS[self.kind](text)
        if self.range is not None and not self.range[0] <= number <= self.range[1]:
            raise ValueError(f"{text!r} is outside {self.range_words}")
        return number

    def _checked_text(self, text: str) -> Value:
        if not text or "\0" in text:
            raise ValueError(f"{text!r} is not a value")
        if self.choices and text not in self.choices:
            raise ValueError(f"{text!r} is none of {', '.join(self.choices)}")
        return Path(text) if self.kind == "path" else text

    def words(self, value: Value) -> str:
        """`value` for people, without a secret."""
        if value is None:
            return self.default_words
        if self.secret:
            return "(set, not shown)"
        if self.word and value == self.word:
            return self.word
        return format_value(self.kind, value)

    @property
    def range_words(self) -> str:
        if self.choices:
            return ", ".join(self.choices)
        if self.range is None:
            return "on, off" if self.kind == "switch" else ""
        also = f", or {self.word}" if self.word else ""
        return f"{self.words(self.range[0])} to {self.words(self.range[1])}{also}"
