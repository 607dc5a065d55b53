"""`--json` on every command, and what comes is JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from seb_appliance.cli import seb as program

# What only runs or writes a program, and answers nothing.
WITHOUT_JSON = {"serve", "completion", "demo"}
# Those on the machine itself have tests of their own.
ON_THE_MACHINE = {"promote", "doctor", "inspect", "fsck", "admin", "restore", "clone"}
ELSEWHERE = {"bench", "apply", "import", "export", "connections"}  # the same
TABLES = True
NEEDED = {
    "status": [],
    "cost": [],
    "produce": ["TOPIC"],
    "consume": ["TOPIC"],
    "topics list": [],
    "topics create": ["new"],
    "topics fork": ["forked", "--from", "parent"],
    "topics change": ["TOPIC", "linger=2ms"],
    "topics show": ["TOPIC"],
    "topics trim": ["TOPIC", "--before", "1", "--yes"],
    "topics reopen": ["TOPIC"],
    "topics delete": ["TOPIC", "--yes"],
    "groups list": [],
    "groups show": ["GROUP"],
    "groups commit": ["GROUP", "TOPIC=1"],
    "groups reset": ["GROUP", "--to", "earliest", "--yes"],
    "groups delete": ["GROUP", "--yes"],
    "queues list": [],
    "queues show": ["QUEUE"],
    "queues set": ["QUEUE", "--lease", "10s", "--retry-max", "1m", "--dead-letter", "dead"],
    "queues reset": ["QUEUE", "--to", "earliest", "--yes"],
    "queues purge": ["QUEUE", "--yes"],
    "queues redrive": ["QUEUE"],
    "queues delete": ["QUEUE", "--yes"],
    "work": ["QUEUE", "--until-empty", "--json", "--", "true"],
    "subscriptions list": [],
    "subscriptions set": ["QUEUE", "--to", "http://127.0.0.1:9/"],
    "subscriptions show": ["QUEUE"],
    "subscriptions test": ["QUEUE"],
    "subscriptions pause": ["QUEUE"],
    "subscriptions resume": ["QUEUE"],
    "subscriptions replay": ["QUEUE", "latest", "--yes"],
    "subscriptions delete": ["QUEUE", "--yes"],
    "record-keys list": ["TOPIC", "--fresh"],
    "record-keys latest": ["TOPIC", "a", "--fresh"],
    "record-keys history": ["TOPIC", "a", "--fresh"],
    "record-keys delete": ["TOPIC", "a", "--yes"],
    "api-keys list": [],
    "api-keys create": ["k", "--grant", "admin"],
    "api-keys show": ["KEY"],
    "api-keys change": ["KEY", "--name", "n"],
    "api-keys rotate": ["KEY"],
    "api-keys revoke": ["KEY", "--yes"],
    "inlets list": [],
    "inlets set": ["INLET", "--topic", "TOPIC", "--scheme", "github"],
    "inlets show": ["INLET"],
    "inlets delete": ["INLET", "--yes"],
    "tables list": [],
    "tables show": ["TABLE"],
    "tables suggest": ["TOPIC"],
    "tables pause": ["TABLE"],
    "tables resume": ["TABLE"],
    "tables repair": ["TABLE", "--yes"],
    "tables drop": ["OLD", "--yes"],
    "tables attach": ["TABLE"],
    "sql": ["SELECT 1"],
    "audit": [],
    "snapshot": [],
    "profiles list": [],
    "profiles add": ["new", "--url", "http://a", "--key-command", "x"],
    "profiles use": ["there"],
    "profiles remove": ["there", "--yes"],
}
ENDLESS = {"tail"}  # as `consume --follow`


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(program)
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", found) for below, found in command.commands.items())
        else:
            yield name, command


def test_every_command_takes_json() -> None:
    without = {
        name
        for name, command in commands()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == WITHOUT_JSON


def test_every_command_is_looked_at() -> None:
    known = WITHOUT_JSON | ON_THE_MACHINE | ELSEWHERE | ENDLESS
    assert {name for name, _ in commands() if name.split()[0] not in known} == NEEDED.keys()


def with_table(seb, topic):
    seb("topics", "create", topic, "--table", "iceberg")
    while True:  # each look is a request
        listed = seb.good("tables", "list", "--json").json["tables"]
        if topic in {one["table"] for one in listed}:
            return


@pytest.mark.parametrize("name", NEEDED)
def test_what_a_command_answers_is_json(seb, name, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(seb.folder))
    seb.good("profiles", "add", "there", "--url", "http://a", "--key-command", "x")
    seb("topics", "create", "TOPIC", "--key-index", "history")  # is there, perhaps, and was changed
    seb("topics", "create", "parent")
    if name == "sql" or name.startswith("tables"):
        with_table(seb, "TABLE")
    if name == "tables drop":
        with_table(seb, "OLD")
        seb.good("topics", "change", "OLD", "table=none")
    seb.good("produce", "TOPIC", "--key", "a", stdin=b"1\n2\n")
    seb.good("groups", "commit", "GROUP", "TOPIC=1", "--allow-backward")
    seb.good("queues", "set", "QUEUE", "--topic", "TOPIC", "--dead-letter", "OLD")
    if name.startswith("inlets"):
        seb.good("inlets", "set", "INLET", "--topic", "TOPIC", "--scheme", "github")
    if name.startswith("subscriptions"):  # nothing is sent to an address that is not public
        seb.good("subscriptions", "set", "QUEUE", "--to", "http://127.0.0.1:9/")
    made = seb.good("api-keys", "create", "k", "--grant", "admin", "--json").json
    arguments = [made["api_key_id"] if word == "KEY" else word for word in NEEDED[name]]
    told = seb(*name.split(), *arguments, "--json", stdin=b"one\n")
    assert told.code == (1 if name == "subscriptions test" else 0), told.err  # it is not delivered
    if name in ("produce", "consume"):
        assert all(json.loads(line) for line in told.out.splitlines())
    else:
        assert isinstance(told.json, dict)
    assert told.out


def test_rows_of_every_type_are_shown_as_a_table(seb):
    with_table(seb, "TABLE")
    types = "1.5::DOUBLE d, true b, [1, 2] l, {'x': 'y'} s, NULL n, 7 i, 'text' t"
    names, row = seb.good("sql", f"SELECT {types}").out.splitlines()
    assert names.split() == ["d", "b", "l", "s", "n", "i", "t"]
    assert row.split() == ["1.5", "true", "[1,", "2]", '{"x":', '"y"}', "-", "7", "text"]
