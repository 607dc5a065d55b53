"""What an API key may do with MQTT topics and filters."""

from __future__ import annotations

import re
from typing import Final

from seb_appliance.broker.access.grants import CompiledGrants
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.messages.routes import Routes

_NOT_IN_WORDS: Final = re.compile(rb"[^A-Za-z0-9_-]")
_ANY_LEVEL: Final = "+"  # no word of a pattern: only * and ** cover it


def word(level: str) -> str:
    """An MQTT level as a word of a topic name; different levels give different words."""
    if not level:
        return "_x00"
    escaped = level.encode().replace(b"_x", b"_x5Fx")
    return _NOT_IN_WORDS.sub(lambda found: b"_x%02X" % found[0][0], escaped).decode()


class Grants:
    """Its grants cover `a/b` by the topic name `mqtt.a.b`, where `mqtt` is the default topic; or by
    `a.b`, if that is the topic of its records."""

    def __init__(self, key: ApiKeyView, routes: Routes) -> None:
        self._compiled = CompiledGrants(key.grants, 0)
        self._routes = routes
        self._known: dict[str, bool] = {}

    def may_publish(self, topic: str) -> bool:
        """Raises MqttError for what cannot be stored."""
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= mqtt_limits.TOPICS_KNOWN_MAX:
                self._known.clear()
            name, is_keyed = self._routes.place(topic)
            words = list(map(word, topic.split("/"))) if is_keyed else [name]
            known = self._known[topic] = self._cover("produce", words, is_keyed=is_keyed)
        return known

    def may_create(self, topic: str) -> bool:
        """A topic."""
        return self._compiled.is_admin or self._compiled.cover("manage", topic, None)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether grants cover each topic that the filter matches, whatever its length."""
        return all(
            self._cover_part(part, is_keyed=is_keyed)
            for part, is_keyed in self._routes.parts(topic_filter)
        )

    def _cover_part(self, topic_filter: str, *, is_keyed: bool) -> bool:
        levels = topic_filter.split("/")
        has_rest = levels[-1] == "#"
        words = [
            _ANY_LEVEL if one == "+" else word(one) for one in levels[: -1 if has_rest else None]
        ]
        if not has_rest:
            return self._cover("consume", words, is_keyed=is_keyed)
        lengths = range(max(1, len(words)), mqtt_limits.LEVELS_MAX + 1)
        return all(
            self._cover("consume", words + [_ANY_LEVEL] * (length - len(words)), is_keyed=is_keyed)
            for length in lengths
        )

    def _cover(self, operation: str, words: list[str], *, is_keyed: bool) -> bool:
        name = ".".join([self._routes.default, *words] if is_keyed else words)
        return self._compiled.is_admin or self._compiled.cover(operation, name, None)
