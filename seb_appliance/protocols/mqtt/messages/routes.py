"""Which topic has the messages of an MQTT topic: the first route whose filter matches decides.

A keyed topic has many MQTT topics, each as the record key. Or there is a topic for each MQTT topic:
`a/b/c` is `a.b.c`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Final, NamedTuple

from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import BadNameError, ConfigurationError
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code, MqttError
from seb_appliance.protocols.mqtt.messages.records import check_filter, topic_of

_EACH: Final = "*"  # in the setting


class Route(NamedTuple):
    """`topic` None: a topic for each MQTT topic."""

    topic_filter: str
    topic: str | None


class Routes:
    """`default`: the keyed topic of what no route matches. `others`: topics with no messages."""

    def __init__(
        self, default: str, routes: Iterable[Route] = (), others: Iterable[str] = ()
    ) -> None:
        """Raises ConfigurationError for a route to one of the others."""
        self.default = default
        self.all = list(routes)
        named = [one.topic for one in self.all if one.topic is not None]
        self.keyed = list(dict.fromkeys([default, *named]))
        self._taken = {*others, *self.keyed}
        for topic in {*others} & {*named}:
            raise ConfigurationError(f"mqtt_routes: {topic} has no messages of clients")

    def place(self, topic: str) -> tuple[str, bool]:
        """The topic that has the messages of this MQTT topic, and whether as a record key. Raises
        MqttError if there can be none."""
        route = self._route_of(topic)
        if route is None:
            return self.default, True
        if route.topic is not None:
            return route.topic, True
        name = topic.replace("/", ".")
        if "." in topic or name in self._taken:
            raise MqttError(Code.BAD_TOPIC, "no topic can have this name")
        try:
            return check_topic_name(name), False
        except BadNameError as error:
            raise MqttError(Code.BAD_TOPIC, error.detail) from error

    def topic_of(self, topic: str, key: bytes | None) -> str | None:
        """The MQTT topic of a record; None if it has none. What others store in the topic of a
        route must have a key that the route matches."""
        if topic not in self._taken:
            return topic.replace(".", "/")
        found = topic_of(key)
        if found is None or topic == self.default:
            return found
        is_routed = any(one.topic == topic and _matches(one, found) for one in self.all)
        return found if is_routed else None

    def is_log(self, topic: str) -> bool:
        """Whether its records are messages."""
        if topic in self._taken:
            return topic in self.keyed
        route = self._route_of(topic.replace(".", "/"))
        return route is not None and route.topic is None

    def may_have(self, topic: str, topic_filter: str) -> bool:
        """Whether messages of this topic may match the filter."""
        if topic == self.default:
            return True
        if topic not in self._taken:
            return common(topic.replace(".", "/"), topic_filter) is not None
        return any(
            one.topic == topic and common(one.topic_filter, topic_filter) is not None
            for one in self.all
        )

    def parts(self, topic_filter: str) -> Iterable[tuple[str, bool]]:
        """What the filter may match, as filters, and whether in keyed topics."""
        for one in self.all:
            found = common(one.topic_filter, topic_filter)
            if found is not None:
                yield found, one.topic is not None
            if found == topic_filter:  # nothing is left for the others
                return
        yield topic_filter, True

    def _route_of(self, topic: str) -> Route | None:
        return next((one for one in self.all if _matches(one, topic)), None)


def parse(setting: str | None) -> list[Route]:
    """Of `FILTER=TOPIC, FILTER=*, …`. Raises ConfigurationError."""
    found = list[Route]()
    for part in (setting or "").split(","):
        if not part.strip():
            continue
        topic_filter, _, topic = part.strip().rpartition("=")
        try:
            check_filter(topic_filter)
            found.append(Route(topic_filter, None if topic == _EACH else check_topic_name(topic)))
        except (MqttError, BadNameError) as error:
            why = error.text if isinstance(error, MqttError) else error.detail
            raise ConfigurationError(f"mqtt_routes: {part.strip()!r}: {why}") from error
    if len(found) > mqtt_limits.ROUTES_MAX:
        raise ConfigurationError(f"mqtt_routes: more than {mqtt_limits.ROUTES_MAX} routes")
    return found


def common(one: str, other: str) -> str | None:
    """The filter of what both filters match; None if that is nothing. Wildcards do not match a
    first level that begins with $."""
    if any(a[:1] == "$" and b[:1] in {"+", "#"} for a, b in ((one, other), (other, one))):
        return None
    levels = list[str]()
    for a, b in zip_longest(one.split("/"), other.split("/")):
        if "#" in (a, b):
            return _rest(levels, one, other)
        if a is None or b is None or (a != b and "+" not in (a, b)):
            return None
        levels.append(b if a == "+" else a)
    return "/".join(levels)


def _rest(levels: list[str], one: str, other: str) -> str:
    """After equal levels, one of the two goes on with `#`: the other tells what follows."""
    at = len(levels)
    a, b = one.split("/"), other.split("/")
    return "/".join(levels + (b if a[at : at + 1] == ["#"] else a)[at:])


def _matches(route: Route, topic: str) -> bool:
    return common(route.topic_filter, topic) is not None
