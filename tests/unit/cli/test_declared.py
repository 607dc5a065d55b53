"""A topic setting or a quota is declared in one place; commands, API, file and forms follow."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec
import pytest

from seb_appliance.api.routes.manage.api_keys import QuotaChanges
from seb_appliance.api.routes.manage.topics import NewTopic, TopicChanges
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.cli.commands.api_keys import api_keys
from seb_appliance.cli.commands.topics import BY_WORD, setting, topics
from seb_appliance.definitions.state import PARTS, read_wanted, write_words
from seb_appliance.formats.api_key_members import QUOTAS, Quotas
from seb_appliance.formats.declared import Declared
from seb_appliance.formats.topic_settings import SETTINGS, TopicSettings
from seb_appliance.ui.forms import Form
from seb_appliance.ui.pages.api_keys import FIELDS as API_KEY_FIELDS
from seb_appliance.ui.pages.topics.topic import FORM, changes_of, effects, written

DOCUMENT = Path(__file__).parents[2] / "golden" / "copies" / "openapi.txt"


def schema(name: str) -> dict[str, object]:
    """The properties of a schema of the OpenAPI document."""
    start = f" components schemas {name} "
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    properties: dict[str, object] = next(
        json.loads(line.removeprefix(start)) for line in lines if line.startswith(start)
    )["properties"]
    return properties


def example(one: Declared) -> str:
    """A value that may be set, as a person writes it."""
    texts = {"duration": "2s", "size": "3MiB", "number": "7", "ratio": "0.25"}
    texts["text"] = "total:double=$.total"
    return texts.get(one.kind) or one.choices[0]


def test_every_field_of_the_stored_structs_is_declared() -> None:
    assert tuple(SETTINGS) == TopicSettings.__struct_fields__
    assert tuple(QUOTAS) == Quotas.__struct_fields__


def test_the_http_api_has_every_setting_and_no_other() -> None:
    assert set(NewTopic.__struct_fields__) == {*SETTINGS, "fork_of"}
    assert TopicChanges.__struct_fields__ == tuple(SETTINGS)
    assert QuotaChanges.__struct_fields__ == tuple(QUOTAS)
    assert schema("SettingsOut").keys() == schema("TopicChanges").keys() == SETTINGS.keys()
    assert schema("Quotas").keys() == schema("QuotaChanges").keys() == QUOTAS.keys()


@pytest.mark.parametrize("one", SETTINGS.values(), ids=lambda one: one.name)
def test_a_command_has_a_flag_with_the_declared_help(one: Declared) -> None:
    flags = {flag: option for option in topics.commands["create"].params for flag in option.opts}
    option = flags[f"--{one.word.replace('_', '-')}"]
    assert isinstance(option, click.Option)
    assert (option.metavar, option.help) == (one.metavar, one.help)
    assert f"{one.word}=" in (topics.commands["change"].help or "")


def test_a_command_has_a_flag_for_each_quota() -> None:
    for command in ("create", "change"):
        names = {option.name for option in api_keys.commands[command].params}
        assert names >= QUOTAS.keys()


@pytest.mark.parametrize("one", SETTINGS.values(), ids=lambda one: one.name)
def test_a_value_means_the_same_in_a_command_a_file_and_a_form(one: Declared) -> None:
    text = example(one)
    name, value = setting(one.word, text)
    settings = TopicSettings(**{name: value})
    members = msgspec.structs.asdict(settings)
    words = PARTS["topics"](members)
    assert words.keys() == {one.word}
    file = f"topics: {{a: {{{one.word}: {json.dumps(text)}}}}}".encode()
    assert read_wanted(file, "f") == {"topics": {"a": members}}
    written_file = write_words({"topics": {"a": words}}).encode()
    assert read_wanted(written_file, "f") == {"topics": {"a": members}}
    form = changes_of(Form([(one.name, text)]))
    assert TopicSettings(**form) == settings
    assert changes_of(Form(list(written(settings).items()))) == form


def test_the_form_shows_every_setting_and_quota() -> None:
    assert [one.name for one in FORM] == list(SETTINGS)
    assert QUOTAS.keys() <= API_KEY_FIELDS
    assert all(one.label and one.help for one in (*FORM, *QUOTAS.values()))


def test_every_setting_but_a_limit_has_a_default() -> None:
    effective = BrokerSettings().effective(TopicSettings())
    unlimited = {name for name, one in SETTINGS.items() if one.default is None}
    assert unlimited == {name for name in SETTINGS if getattr(effective, name) is None}


@pytest.mark.parametrize("one", SETTINGS.values(), ids=lambda one: one.name)
def test_a_change_of_each_setting_is_said_in_words(one: Declared) -> None:
    defaults = BrokerSettings().effective(TopicSettings())
    for text in one.choices or (example(one),):
        changed = BrokerSettings().effective(TopicSettings(**{one.name: one.parse(text)}))
        assert len(effects(defaults, changed)) == (changed != defaults)


def test_words_of_a_setting_are_its_name_without_the_unit() -> None:
    assert BY_WORD.keys() == {name.removesuffix("_ms") for name in SETTINGS}
