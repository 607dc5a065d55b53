"""What API keys may do: their grants, compiled into automata, and a cache of decisions."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.topics.names import Patterns
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import ForbiddenError
from seb_appliance.formats.api_key_members import Grant

# Each operation, and whose grants cover it: who may read a topic may work on its records, too.
_COVERED_BY: Final = {
    "produce": ("produce",),
    "consume": ("consume",),
    "work": ("work", "consume"),
    "manage": ("manage",),
}
_Asked = tuple[int, str, str | None, str | None]


class CompiledGrants:
    """The grants of one API key. `number` tells it from every other, also of the same key."""

    def __init__(self, grants: tuple[Grant, ...], number: int) -> None:
        self.grants = grants
        self.number = number
        self.is_admin = grants_admin(grants)
        self._by_topic = Patterns(grant.topics for grant in grants)
        self._by_group = Patterns(grant.groups for grant in grants)
        self._of_operation = {
            operation: frozenset(i for i, g in enumerate(grants) if g.operation in covers)
            for operation, covers in _COVERED_BY.items()
        }

    def cover(self, operation: str, topic: str | None, group: str | None) -> bool:
        """Whether one grant covers all three (None: no topic, or group, in particular)."""
        left = self._of_operation.get(operation, frozenset())
        if left and topic is not None:
            left &= self._by_topic.match(topic)
        if left and group is not None:
            left &= self._by_group.match(group)
        return bool(left)


class Authorizer:
    """Compiles the grants of a key on first use and caches decisions; both caches are bounded and
    drop their oldest items."""

    def __init__(self) -> None:
        self._compiled: OrderedDict[str, CompiledGrants] = OrderedDict()
        self._decided: OrderedDict[_Asked, bool] = OrderedDict()
        self._next_number = 0

    def may(
        self, key: ApiKeyView, operation: str, topic: str | None = None, group: str | None = None
    ) -> bool:
        """Whether one grant of `key` covers `operation` on `topic` and for `group` (None: on none
        in particular)."""
        compiled = self._compiled.get(key.api_key_id)
        if compiled is None or compiled.grants is not key.grants:
            self._next_number += 1
            compiled = CompiledGrants(key.grants, self._next_number)
            self._compiled.pop(key.api_key_id, None)
            self._compiled[key.api_key_id] = compiled
            if len(self._compiled) > limits.GRANTS_COMPILED_MAX:
                self._compiled.popitem(last=False)
        if compiled.is_admin:
            return True
        if topic is not None and len(topic) > limits.NAME_LENGTH_MAX:
            return compiled.cover(operation, topic, group)  # too long to be kept
        asked = (compiled.number, operation, topic, group)
        decided = self._decided.get(asked)
        if decided is None:
            decided = self._decided[asked] = compiled.cover(operation, topic, group)
            if len(self._decided) > limits.GRANT_DECISIONS_KEPT:
                self._decided.popitem(last=False)
        return decided

    def authorize(
        self, key: ApiKeyView, operation: str, topic: str | None = None, group: str | None = None
    ) -> None:
        """Raises ForbiddenError that names the missing grant."""
        if not self.may(key, operation, topic, group):
            raise self.no_grant(key, operation, topic, group)

    @staticmethod
    def no_grant(
        key: ApiKeyView, operation: str, topic: str | None, group: str | None
    ) -> ForbiddenError:
        """The refusal of a key without that grant."""
        missing = {"operation": operation}
        where = ""
        if topic is not None:
            missing["topics"] = topic
            where += f" on topic {topic!r}"
        if group is not None:
            missing["groups"] = group
            where += f" for group {group!r}"
        return ForbiddenError(
            f"The API key {key.api_key_id} has no grant for {operation!r}{where}.",
            missing_grant=missing,
        )


def grants_admin(grants: tuple[Grant, ...]) -> bool:
    return any(grant.operation == "admin" for grant in grants)
