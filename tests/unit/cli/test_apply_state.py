"""The file of `seb apply`: what is taken, and how the rest is refused."""

from __future__ import annotations

import re
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.definitions.plain_yaml import read_nodes
from seb_appliance.definitions.state import (
    PARTS,
    Json,
    State,
    read_wanted,
    write_words,
)
from seb_appliance.errors import BadRequestError, ConfigurationError
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.topic_settings import TopicSettings


def wanted(text: str) -> State:
    return read_wanted(text.encode(), "seb.yaml")


def refused(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(ConfigurationError) as failure:
        read_wanted(data, "seb.yaml")
    return failure.value.detail


def topic(settings: str) -> TopicSettings:
    return msgspec.convert(wanted(f"topics: {{a: {{{settings}}}}}")["topics"]["a"], TopicSettings)


def api_key(members: str) -> Json:
    return wanted(f"api_keys: {{a: {{{members}}}}}")["api_keys"]["a"]


def test_a_setting_has_a_unit_or_is_a_number_in_the_words_of_the_api() -> None:
    assert topic("retention: 7d, linger: 0") == TopicSettings(retention_ms=604_800_000, linger_ms=0)
    assert topic("retention_ms: 604800000") == TopicSettings(retention_ms=604_800_000)
    assert topic("retention_bytes: 1GiB") == topic("retention_bytes: 1073741824")
    assert topic("early_flush: true") == topic("early_flush: on") == TopicSettings(early_flush=True)
    assert topic("compression: none, cleanup: 'compact,delete', dirty_ratio: 0.25") == (
        TopicSettings(compression="none", cleanup="compact,delete", dirty_ratio=0.25)
    )


@pytest.mark.parametrize("default", ["linger: default", "linger: null", "linger: ", "linger_ms: ~"])
def test_a_setting_may_be_the_appliances_own(default: str) -> None:
    assert topic(default) == TopicSettings()


def test_an_api_key_has_what_the_command_line_gives_it() -> None:
    members = "grants: [consume:orders.*:lake, admin], bytes_in_per_second: 1MiB, disabled: true"
    assert api_key(f"{members}, expires: 2030-01-01T01:00:00+01:00, description: '7'") == (
        {
            "grants": [
                {"operation": "consume", "topics": "orders.*", "groups": "lake"},
                {"operation": "admin", "topics": "**", "groups": "**"},
            ],
            "description": "7",
            "quotas": msgspec.to_builtins(Quotas(bytes_in_per_second=1 << 20)),
            "expires": "2030-01-01T00:00:00+00:00",
            "disabled": True,
        }
    )
    assert api_key("grants: [admin], expires: never") == api_key("grants: [admin], expires: ")


def test_the_file_in_the_docs_is_one() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "CLI.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^    topics:\n(?:    .*\n)+", docs, re.MULTILINE)
    found = wanted(textwrap.dedent(block))
    settings = msgspec.convert(found["topics"], dict[str, TopicSettings])
    assert settings == {"orders.eu": TopicSettings(linger_ms=20, retention_ms=30 * 86_400_000)}
    assert found["groups"] == {"lake": {"orders.eu": "earliest"}}
    assert list(found["api_keys"]) == ["checkout"]


def test_a_part_that_is_not_named_is_absent_and_not_empty() -> None:
    assert wanted("topics: {}") == {"topics": {}}
    assert wanted("groups: {lake: {}}") == {"groups": {"lake": {}}}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("topics:\n  a.b:\n    lingre: 1s\n", "line 3: topics / a.b / lingre: unknown name; "),
        (
            "topic: {}\n",
            "1: topic: unknown name; expected one of api_keys, groups, inlets, queues",
        ),
        ("api_keys: {a: {grants: [admin], secret: x}}", "api_keys / a / secret: unknown name"),
        ("topics:\n", "line 1: topics: it has no value"),
        ("topics: []\n", "topics: expected names with values"),
        ("topics: {a: [1]}\n", "topics / a: expected names with values"),
        ("7", "line 1: expected names with values"),
        ("topics: {a: {linger: 20}}", "topics / a / linger: '20' has no unit; write 20ms or 20s"),
        ("topics: {a: {linger: [20ms]}}", "topics / a / linger: expected one value"),
        ("topics: {a: {linger: 7 days}}", "linger: '7 days' is not a duration such as"),
        ("topics: {a: {linger_ms: 20ms}}", "linger_ms: '20ms' is not a number from 0 to"),
        ("topics: {a: {linger_ms: true}}", "linger_ms: 'true' is not a number from 0 to"),
        ("topics: {a: {linger_ms: -1}}", "linger_ms: '-1' is not a number from 0 to"),
        ("topics: {a: {linger_ms: 9007199254740992}}", "is not a number from 0 to 90071992"),
        ("topics: {a: {linger_ms: 1, linger: 1s}}", "given twice, as linger and as linger_ms"),
        ("topics: {a: {early_flush: 1}}", "early_flush: '1' is neither on nor off"),
        ("topics: {a: {dirty_ratio: 1.5}}", "dirty_ratio: 1.5 is not between 0.01 and 0.99"),
        ("topics: {a: {dirty_ratio: nan}}", "dirty_ratio: 'nan' is not a number such as 0.5"),
        ("topics: {a: {compression: zip}}", "compression: 'zip' is none of none zstd"),
        ("groups: {g: {a: 7}}", "groups / g / a: '7' is neither earliest nor latest"),
        ("groups: {g: earliest}", "groups / g: expected names with values"),
        ("api_keys: {a: }", "api_keys / a: grants are missing"),
        ("api_keys: {a: {grants: []}}", "grants: an API key needs at least one"),
        ("api_keys: {a: {grants: admin}}", "grants: expected a list"),
        ("api_keys: {a: {grants: [x:y]}}", "a / grants / 1: 'x:y' is not a grant. A grant"),
        ("api_keys: {a: {grants: ['consume:']}}", "grants / 1: 'consume:' is not a grant. A grant"),
        ("api_keys: {a: {grants: [{a: b}]}}", "grants / 1: expected text"),
        ("api_keys: {a: {grants: [admin], description: 7}}", "description: expected text; quote"),
        ("api_keys: {a: {grants: [admin], disabled: no}}", "disabled: expected true or false"),
        ("api_keys: {a: {grants: [admin], requests_per_second: 0}}", "Expected `int` >= 1"),
        ("api_keys: {a: {grants: [admin], requests_per_second: 1.5}}", "'1.5' is not a whole"),
        ("api_keys: {a: {grants: [admin], expires: 90d}}", "'90d' is neither a time with"),
        ("api_keys: {a: {grants: [admin], expires: 2030-01-01}}", "is neither a time with"),
        (
            "api_keys: {a: {grants: [admin], expires: 9999-12-31T23:59:59-01:00}}",
            "is neither a time with",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line_and_its_place(text: str, sentence: str) -> None:
    assert sentence in refused(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "seb.yaml is empty"),
        ("# nothing\n", "seb.yaml is empty"),
        ("~", "seb.yaml is empty"),
        (b"topics: {\xff: {}}", "seb.yaml is not UTF-8 (at byte 9)"),
        ("topics: {a: \0}", "seb.yaml is not YAML (control characters are not allowed)"),
        ("topics: {a\n", "seb.yaml, line 2: not YAML"),
        ("topics:\n\ta: {}\n", "seb.yaml, line 2: not YAML"),
        ("topics: {a: {}}\n---\ntopics: {}\n", "line 2: a second document"),
        ("topics: {a: {}, b: {},\n a: {}}", "line 2: topics: 'a' is given twice (first in line 1)"),
        ("topics: {[a]: {}}", "topics: a name must be a scalar"),
        ("topics: {'': {}}", "topics: a name is missing"),
        ("topics: {a: &x {}, b: *x}", "topics / a: anchors and aliases"),
        ("topics: {a: *x}", "topics / a: anchors and aliases"),
        ("topics: {&x a: {}}", "topics: anchors and aliases"),
        ("topics: {a: {<<: {linger: 1s}}}", "topics / a / <<: unknown name"),
        ("topics: !!python/object/apply:os.system [ls]", "topics: tags are not supported"),
        ("topics: {a: !x }", "topics / a: tags are not supported"),
        ("[" * 99, "nested deeper than 8"),
        ("a: b: c", "line 1: not YAML (mapping values are not allowed"),
        (b"#" * (limits.APPLY_FILE_BYTES_MAX + 1), "has more than 8388608 bytes"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_plain_data_is_refused(text: str | bytes, sentence: str) -> None:
    assert sentence in refused(text)


@pytest.mark.parametrize("text", ["[", "- ", "{", "? ", "a: [", "'", '"\\U0010FFFF', "&a ", "!"])
def test_a_file_that_is_full_of_it_is_refused_at_once(text: str) -> None:
    data = text * (limits.APPLY_FILE_BYTES_MAX // len(text))
    began = time.process_time()
    refused(data)
    assert time.process_time() - began < 2


def test_an_alias_that_would_unfold_into_gigabytes_costs_nothing() -> None:
    rows = ["topics:", " a0: &a0 [x]"]
    rows += [f" a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 99)]
    assert "line 2: topics / a0: anchors and aliases" in refused("\n".join(rows))


@pytest.mark.parametrize("word", ["on", "yes", "NO", "2030-01-01", "0x10", "1_000", "1:30", "08"])
def test_what_other_readers_take_for_something_else_is_text(word: str) -> None:
    assert read_nodes(word.encode(), "x").value == word


WORDS = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES = WORDS.filter(bool)


GRANTS = st.builds(
    Grant,
    operation=st.sampled_from(["produce", "consume", "work", "manage", "admin"]),
    topics=st.sampled_from(["**", "orders.*", "null"]),
    groups=st.sampled_from(["**", "lake", "0"]),
)
AMOUNTS = st.none() | st.integers(1, limits.OFFSET_MAX)
API_KEYS = st.fixed_dictionaries(
    {
        "grants": st.lists(GRANTS.map(msgspec.to_builtins), min_size=1),
        "description": WORDS,
        "quotas": st.fixed_dictionaries(
            {
                "requests_per_second": AMOUNTS,
                "bytes_in_per_second": AMOUNTS.map(lambda size: size and size % 10**15 + 1),
                "bytes_out_per_second": st.none(),
            }
        ),
        "expires": st.none() | st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
        "disabled": st.booleans(),
    }
)


def words(state: State) -> State:
    return {
        part: {name: PARTS[part](members) for name, members in named.items()}
        for part, named in state.items()
    }


@given(st.dictionaries(NAMES, API_KEYS))
def test_api_keys_that_are_written_are_read_as_they_were(api_keys: dict[str, Json]) -> None:
    state = words({"api_keys": api_keys})
    assert words(wanted(write_words(state))) == state


def test_no_file_is_written_that_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "APPLY_FILE_BYTES_MAX", 30)
    assert write_words({"topics": {"a": {}}}) == "topics:\n  a: {}\n"
    with pytest.raises(BadRequestError, match="more than 30 bytes"):
        write_words({"topics": {"a" * 20: {}}})
