"""What `seb apply` and the admin page work with: the state that a file asks for, the state of an
appliance, and the changes that lead from one to the other.

A state maps each part (topics, groups, queues, inlets, …) to its members by name.
States are compared in the words of the file: they are equal if their words are. A default value has
no word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec
import yaml

from seb_appliance import limits
from seb_appliance.client import Admin
from seb_appliance.definitions.plain_yaml import Node, read_nodes
from seb_appliance.errors import BadRequestError
from seb_appliance.formats.api_key_members import QUOTAS, Grant, Quotas
from seb_appliance.formats.declared import Declared
from seb_appliance.formats.queues.queues import SETTINGS as QUEUE_SETTINGS
from seb_appliance.formats.queues.queues import flat, nested
from seb_appliance.formats.topic_settings import SETTINGS
from seb_appliance.protocols.inlets.settings import SETTINGS as INLET_SETTINGS
from seb_appliance.protocols.inlets.settings import VERIFY
from seb_appliance.protocols.kafka.partitions import partition_of
from seb_appliance.protocols.subscriptions.settings import SETTINGS as SUBSCRIPTION_SETTINGS

Json = dict[str, Any]
INLET_MEMBERS: Final = {**INLET_SETTINGS, **VERIFY, **QUOTAS}
Words = dict[str, Any]
State = dict[str, dict[str, Json]]
FILE_MEMBER: Final = "secret_file"  # the file with the secret of a new one


def _words(values: Json, declared: Mapping[str, Declared]) -> Words:
    """`{"linger": "20ms", "early_flush": True}`: the values that are set."""
    given = {one: values.get(name) for name, one in declared.items()}
    return {
        one.word: value if one.kind in ("switch", "ratio", "number") else one.text(value)
        for one, value in given.items()
        if value is not None
    }


def _api_key_words(key: Json) -> Words:
    words: Words = {"description": key["description"]} if key["description"] else {}
    # Neither the order of grants nor their repetition means anything.
    words["grants"] = sorted(
        {grant.text() for grant in msgspec.convert(key["grants"], list[Grant])}
    )
    words |= _words(key["quotas"], QUOTAS)
    if key["expires"] is not None:  # to the microsecond, in UTC: 2027-01-01T00:00:00Z
        time = datetime.fromisoformat(key["expires"]).astimezone(UTC)
        words["expires"] = f"{time.replace(tzinfo=None).isoformat()}Z"
    if key["disabled"]:
        words["disabled"] = True
    return words


def _inlet_words(settings: Json) -> Words:
    """Its secrets cannot be read back, so they are no part of its state."""
    return _words({**settings, **settings["verify"], **settings.get("quotas", {})}, INLET_MEMBERS)


def _queue_words(settings: Json) -> Words:
    values = flat(settings)
    given = {name: v for name, v in values.items() if v != QUEUE_SETTINGS[name].default}
    return {**_words(given, QUEUE_SETTINGS), "topics": sorted(values["topics"])}


def _subscription_words(one: Json) -> Words:
    """As the API has it, without its secrets and headers."""
    return {**_words(one["settings"], SUBSCRIPTION_SETTINGS), "topics": sorted(one["topics"] or ())}


# Each part, and how the API's members of one name become words. A group has its topics, each with
# where reading begins. Topics come first and go last, because a group needs its topics.
PARTS: Final[dict[str, Callable[[Json], Words]]] = {
    "topics": lambda settings: _words(settings, SETTINGS),
    "groups": dict,
    "queues": _queue_words,
    "inlets": _inlet_words,
    "subscriptions": _subscription_words,
    "api_keys": _api_key_words,
}
# What clients of MQTT and of stream subscriptions have got is the offsets of such groups.
_GROUPS_OF_PROTOCOLS: Final = ("mqtt.", "mqtt-share.", "ds.")
_BESIDE_MQTT: Final = ("-retained", "-sessions")
_DELETED: Final = ("groups", "inlets", "subscriptions", "queues", "topics", "api_keys")


class Found(NamedTuple):
    """What exists under a name. Only API keys have an id; two of them may share a name."""

    name: str
    words: Words
    api_key_id: str | None = None


def look(admin: Admin, wanted: State | None) -> dict[str, list[Found]]:
    """The parts that `wanted` names (None: all). A group that it does not name has no topics here.
    Raises ApplianceError."""
    found: dict[str, list[Found]] = {}
    for part in PARTS if wanted is None else wanted:
        words = PARTS[part]
        if part == "topics":
            found[part] = [
                Found(topic["topic"], words(topic["settings"])) for topic in admin.topics()
            ]
        elif part == "inlets":
            found[part] = [Found(one["inlet"], words(one["settings"])) for one in admin.inlets()]
        elif part == "queues":
            found[part] = [Found(one["queue"], words(one["settings"])) for one in admin.queues()]
        elif part == "subscriptions":
            found[part] = [Found(one["subscription"], words(one)) for one in admin.subscriptions()]
        elif part == "groups":
            for name in (group["group"] for group in admin.groups()):
                asked = wanted is None or name in wanted[part]
                topics = [topic["topic"] for topic in admin.group(name)["topics"]] if asked else []
                starts = dict.fromkeys(sorted(topics), "earliest")
                found.setdefault(part, []).append(Found(name, starts))
        else:
            found[part] = [
                Found(key["name"], words(key), key["api_key_id"]) for key in admin.api_keys()
            ]
    return found


def export(admin: Admin) -> dict[str, dict[str, Words]]:
    """The whole state in the words of the file. Raises ApplianceError; BadRequestError when API
    keys share a name."""
    present = look(admin, None)
    named = {part: _by_name(present.get(part, ())) for part in PARTS}
    return {part: {n: there[n].words for n in sorted(there)} for part, there in named.items()}


def _by_name(there: Iterable[Found]) -> dict[str, Found]:
    """Raises BadRequestError when two API keys have the same name."""
    found: dict[str, Found] = {}
    for one in there:
        if one.name in found:
            ids = f"{found[one.name].api_key_id} and {one.api_key_id}"
            raise BadRequestError(
                f"the API keys {ids} are both called {one.name!r}, and a file identifies API keys "
                "by name: rename or revoke one of them (seb api-keys)"
            )
        found[one.name] = one
    return found


class Change(NamedTuple):
    """`before` and `after`: words of the file; of a change, those that differ. `api_key_id`: of an
    API key that exists."""

    action: Literal["create", "change", "delete"]
    kind: str
    name: str
    api_key_id: str | None
    before: Words
    after: Words


class Plan(NamedTuple):
    """`changes` in the order to make them; `extra`: what exists and is not in the file."""

    changes: list[Change]
    extra: list[Change]


def plan(wanted: State, present: Mapping[str, list[Found]], *, prune: bool, in_use: str) -> Plan:
    """`prune`: delete what is not in the file, but never the API key `in_use`. Raises
    BadRequestError when a name of the file is that of two API keys.

    What is created comes first in its part, because an admin key must exist at any time.
    """
    changes: list[Change] = []
    for part in (part for part in PARTS if part in wanted):
        named = wanted[part]
        there = _by_name(one for one in present.get(part, ()) if one.name in named)
        found = [_change(part, n, there.get(n), PARTS[part](named[n])) for n in named]
        changes += sorted(filter(None, found), key=lambda change: change.action != "create")
    extra = [
        Change("delete", part[:-1], one.name, one.api_key_id, one.words, {})
        for part in _DELETED
        for one in present.get(part, ())
        if one.name not in wanted[part] and not _belongs(part, one.name, wanted)
    ]
    kept = [change for change in extra if not prune or change.api_key_id == in_use]
    return Plan(changes + [change for change in extra if change not in kept], kept)


def _belongs(part: str, name: str, wanted: State) -> bool:
    """Whether it was made for something else, with which it stays."""
    if part == "queues":  # a subscription has one of its name
        return name in wanted.get("subscriptions", ())
    if part == "groups":
        return name.startswith(_GROUPS_OF_PROTOCOLS)
    if part != "topics":
        return False
    mains = {partition_of(name)[0], *map(name.removesuffix, _BESIDE_MQTT)}
    queues = wanted.get("queues", {}).values()
    is_named = not mains.isdisjoint(wanted["topics"])
    return is_named or any(queue.get("dead_letter") == name for queue in queues)


def _change(part: str, name: str, there: Found | None, after: Words) -> Change | None:
    before = {} if there is None else there.words
    if part == "groups":  # its offsets stay where they are
        before = {topic: start for topic, start in after.items() if topic in before}
    differ = [word for word in {**before, **after} if before.get(word) != after.get(word)]
    if not differ and (there is not None or part == "groups"):
        return None
    was = {word: before[word] for word in differ if word in before}
    will = {word: after[word] for word in differ if word in after}
    if there is None:
        return Change("create", part[:-1], name, None, {}, after)
    return Change("change", part[:-1], name, there.api_key_id, was, will)


# The file, read as a state and written.

NEVER: Final = "never"
DEFAULT: Final = "default"
# A duration has two names: `linger: 20ms` and, as in the API, `linger_ms: 20`.
_BY_NAME: Final = {name: one for one in SETTINGS.values() for name in (one.word, one.name)}


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML comes without types
    """Escapes unprintable characters: some would be read as ends of lines."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
    ),
)


def read_wanted(data: bytes, source: str) -> State:
    """The parts that the file names; members as in the API, all of them. Raises ConfigurationError
    that names the line and what is wrong there."""
    parts = read_nodes(data, source).members(PARTS)
    for node in parts.values():
        if node.value is None:
            raise node.wrong("it has no value; remove it, or write {} for an empty part")
    read = {
        "topics": _topic,
        "groups": _group,
        "queues": _queue,
        "inlets": _inlet,
        "subscriptions": _subscription,
        "api_keys": _api_key,
    }
    return {
        part: {name: read[part](one) for name, one in node.members().items()}
        for part, node in parts.items()
    }


def write_words(words: dict[str, dict[str, Words]]) -> str:
    """The file that says this. Raises BadRequestError when it is larger than may be read."""
    text: str = yaml.dump(words, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    if len(text.encode()) > limits.APPLY_FILE_BYTES_MAX:
        raise BadRequestError(f"the file has more than {limits.APPLY_FILE_BYTES_MAX} bytes")
    return text


def _topic(node: Node) -> Json:
    settings: Json = {}
    for name, given in node.members(_BY_NAME).items():
        one = _BY_NAME[name]
        if one.name in settings:
            raise given.wrong(f"given twice, as {one.word} and as {one.name}")
        settings[one.name] = _milliseconds(given) if name != one.word else _value(given, one)
    return dict.fromkeys(SETTINGS) | settings


def _value(node: Node, one: Declared) -> Any:
    """None: the appliance's default."""
    if node.value is None or node.value == DEFAULT:
        return None
    if one.kind == "names" and isinstance(node.value, list):
        return [item.expect(str) for item in node.value]
    if isinstance(node.value, dict | list):
        raise node.wrong("expected one value")
    is_switch = isinstance(node.value, bool)
    text = ("on" if node.value else "off") if is_switch else node.text
    try:
        return one.parse(text)
    except ValueError as error:
        raise node.wrong(str(error)) from error


def _milliseconds(node: Node) -> int | None:
    if node.value is None:
        return None
    if type(node.value) is not int or not 0 <= node.value <= limits.OFFSET_MAX:
        raise node.wrong(f"{node.text[:100]!r} is not a number from 0 to {limits.OFFSET_MAX}")
    return node.value


def _group(node: Node) -> Json:
    for given in node.members().values():
        if given.value not in ("earliest", "latest"):
            raise given.wrong(f"{given.text[:100]!r} is neither earliest nor latest")
    return {topic: given.value for topic, given in node.members().items()}


def _inlet(node: Node) -> Json:
    given = node.members({*INLET_MEMBERS, FILE_MEMBER})
    for name in ("topic", "scheme"):
        if name not in given:
            raise node.wrong(f"{name} is missing")
    read = {
        name: value
        for name, one in INLET_MEMBERS.items()
        if name in given and (value := _value(given[name], one)) != one.default
    }
    members: Json = {name: value for name, value in read.items() if name in INLET_SETTINGS}
    members["verify"] = {name: value for name, value in read.items() if name in VERIFY}
    if FILE_MEMBER in given:
        members[FILE_MEMBER] = given[FILE_MEMBER].expect(str)
    if any(name in given for name in QUOTAS):
        members["quotas"] = _quotas(node, given)
    return members


def _queue(node: Node) -> Json:
    given = node.members(one.word for one in QUEUE_SETTINGS.values())
    settings = _declared(given, QUEUE_SETTINGS)
    if "topics" not in settings:
        raise node.wrong("topics is missing")
    return nested(settings)


def _declared(given: Mapping[str, Node], declared: Mapping[str, Declared]) -> Json:
    """Those that are not the default."""
    return {
        name: value
        for name, one in declared.items()
        if one.word in given and (value := _value(given[one.word], one)) != one.default
    }


def _subscription(node: Node) -> Json:
    words = {one.word for one in SUBSCRIPTION_SETTINGS.values()}
    given = node.members({*words, "topics", FILE_MEMBER})
    for name in ("url", "topics"):
        if name not in given:
            raise node.wrong(f"{name} is missing")
    settings = _declared(given, SUBSCRIPTION_SETTINGS)
    topics = [item.expect(str) for item in given["topics"].expect(list)]
    members: Json = {"settings": settings, "topics": topics}
    if FILE_MEMBER in given:
        members[FILE_MEMBER] = given[FILE_MEMBER].expect(str)
    return members


def _quotas(node: Node, given: Mapping[str, Node]) -> Json:
    quotas = {name: _value(given[name], one) for name, one in QUOTAS.items() if name in given}
    try:
        return msgspec.to_builtins(msgspec.convert(quotas, Quotas))  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise node.wrong(str(error)) from error


def _api_key(node: Node) -> Json:
    given = node.members({"description", "grants", "expires", "disabled", *QUOTAS})
    if "grants" not in given:
        raise node.wrong("grants are missing")
    if not given["grants"].expect(list):
        raise given["grants"].wrong("an API key needs at least one grant")
    return {
        "grants": [_grant(item) for item in given["grants"].value],
        "description": given["description"].expect(str) if "description" in given else "",
        "quotas": _quotas(node, given),
        "expires": _expires(given["expires"]) if "expires" in given else None,
        "disabled": given["disabled"].expect(bool) if "disabled" in given else False,
    }


def _grant(node: Node) -> Json:
    try:
        grant: Json = msgspec.to_builtins(Grant.parse(node.expect(str)))
    except ValueError as error:
        raise node.wrong(str(error)) from error
    return grant


def _expires(node: Node) -> str | None:
    if node.value is None or node.value == NEVER:
        return None
    wrong = node.wrong(
        f"{node.text[:100]!r} is neither a time with its zone, such as 2027-01-01T00:00:00Z, "
        f"nor {NEVER}"
    )
    try:
        time = datetime.fromisoformat(node.expect(str))
        if time.tzinfo is None:
            raise wrong
        return time.astimezone(UTC).isoformat()
    except (ValueError, OverflowError) as error:  # year 10000 in UTC does not exist
        raise wrong from error
