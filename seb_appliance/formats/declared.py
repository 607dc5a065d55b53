"""Values that people set, declared at the fields that store them.

`Annotated[int | None, Declared(...)]` says all about a field: commands, forms and checks ask here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from seb_appliance.quantities import READERS, format_value

Kind = Literal["duration", "size", "number", "switch", "ratio", "choice", "text", "names"]
_METAVARS: Final = {
    "duration": "DURATION", "size": "SIZE", "number": "N", "switch": "on|off",
    "text": "TEXT", "names": "NAMES",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Declared:
    """`bounds` are inclusive; `default` None: unlimited. `name` and `choices` come from the field
    itself."""

    kind: Kind
    label: str
    help: str
    bounds: tuple[float, float] | None = None
    default: bool | float | str | None = None
    name: str = ""
    choices: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """Its name where values have units: of `linger_ms` it is `linger`."""
        return self.name.removesuffix("_ms")

    @property
    def metavar(self) -> str:
        if self.kind == "ratio" and self.bounds is not None:
            return "{:g}-{:g}".format(*self.bounds)
        return _METAVARS.get(self.kind) or "|".join(self.choices)

    def parse(self, text: str) -> Any:
        """Raises ValueError with the end of a sentence. The broker checks `bounds`; those of a
        ratio, which has no unit, are checked here, too."""
        if self.kind == "choice":
            if text not in self.choices:
                raise ValueError(f"{text!r} is none of {' '.join(self.choices)}")
            return text
        value = READERS[self.kind](text)
        if self.kind == "ratio" and self.bounds and not self.bounds[0] <= value <= self.bounds[1]:
            raise ValueError("{} is not between {:g} and {:g}".format(text, *self.bounds))
        return value

    def text(self, value: Any) -> str:
        """As `parse` reads it; what None stands for is said by `unset`."""
        return format_value(self.kind, value)

    @property
    def unset(self) -> str:
        """What holds without a value."""
        return "unlimited" if self.default is None else self.text(self.default)

    def text_or_unlimited(self, value: Any) -> str:
        return "unlimited" if value is None else self.text(value)

    def out_of_bounds(self, value: Any, highest: float | None = None) -> str | None:
        """What is allowed, if `value` is not; `highest` may lower the bound."""
        if value is None or self.bounds is None:
            return None
        low, high = self.bounds[0], self.bounds[1] if highest is None else highest
        if low <= value <= high:
            return None
        unit = {"duration": " ms", "size": " bytes"}.get(self.kind, "")
        return f"{low} to {high}{unit}" + "; null: unlimited" * (self.default is None)


def declared(struct: type[msgspec.Struct]) -> dict[str, Declared]:
    """The declarations of a struct, by field and in its order."""
    found: dict[str, Declared] = {}
    for name, hint in get_type_hints(struct, include_extras=True).items():
        for extra in getattr(hint, "__metadata__", ()):
            if isinstance(extra, Declared):
                choices: tuple[str, ...] = ("on", "off") if extra.kind == "switch" else ()
                if extra.kind == "choice":
                    choices = _literals(get_args(hint)[0])
                found[name] = replace(extra, name=name, choices=choices)
    return found


def _literals(hint: Any) -> tuple[str, ...]:
    """Of a Literal, or of a union with one."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next(found for part in get_args(hint) if (found := _literals(part)))


def changes_of(struct: type[msgspec.Struct], *, constrained: bool) -> Any:
    """A base for the body of a PATCH: each field of `struct` may be absent, and then does not
    change. `constrained` False: whoever takes the values checks their ranges."""
    hints = get_type_hints(struct, include_extras=constrained)
    bare = {
        n: hint.__origin__ if hasattr(hint, "__metadata__") else hint for n, hint in hints.items()
    }
    fields = [
        (name, bare[name] | msgspec.UnsetType | None, msgspec.UNSET)
        for name in struct.__struct_fields__
    ]
    return msgspec.defstruct(f"{struct.__name__}Base", fields, forbid_unknown_fields=True)


def given(changes: Any) -> dict[str, Any]:
    """The fields of a patch that are there."""
    members = msgspec.structs.asdict(changes)
    return {name: value for name, value in members.items() if value is not msgspec.UNSET}
