"""`seb`: its order, its exit codes, one sentence for what went wrong, and how little it imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from seb_appliance import __version__
from seb_appliance.cli import _COMMANDS, run, seb
from seb_appliance.settings import SETTINGS
from seb_appliance.storage.stores.directory import DirectoryStore

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SEB_")}


def python(code: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    return finished.stdout


def test_help_lists_the_commands_in_the_order_of_need() -> None:
    shown = CliRunner().invoke(seb, ["--help"]).output
    order = ("serve", "status", "produce", "consume", "topics", "groups", "api-keys", "doctor")
    places = [shown.index(f"\n  {name} ") for name in (*order, "inspect", "admin")]
    assert places == sorted(places)


def test_the_list_of_commands_says_what_each_command_says() -> None:
    context = click.Context(seb)
    for name, (_, text) in _COMMANDS.items():
        command = seb.get_command(context, name)
        assert command is not None, name
        assert command.get_short_help_str(limit=100) == text


@pytest.mark.parametrize("name", [*_COMMANDS])
def test_the_help_of_a_group_has_whole_sentences(name: str) -> None:
    command = seb.get_command(click.Context(seb), name)
    if isinstance(command, click.Group):
        shown = CliRunner().invoke(seb, [name, "--help"]).output
        assert "..." not in shown.partition("Commands:")[2]


def test_an_argument_that_is_missing_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["bench"]) == 78
    said = capsys.readouterr().err
    assert said.startswith("seb: Missing argument 'WORKLOAD'. Choose from: produce, consume,")
    assert said.count("\n") == 1


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"seb {__version__}\n"


def test_every_setting_but_secrets_has_a_flag_of_serve() -> None:
    serve = seb.get_command(click.Context(seb), "serve")
    assert serve is not None
    flags = {flag for option in serve.params for flag in option.opts}
    assert flags == {"--config"} | {s.flag for s in SETTINGS if s.has_flag and not s.client}
    assert "--s3-secret-access-key" not in flags
    assert "--fail" not in flags


def test_version_imports_no_command() -> None:
    imported = python(
        "import sys\nfrom seb_appliance.cli import run\nrun(['--version'])\nprint(*sys.modules)\n"
    ).splitlines()[-1]
    heavy = {"asyncio", "ssl", "tomllib", "msgspec", "rich", "yaml", "seb_appliance.settings"}
    assert not heavy & set(imported.split())
    assert "seb_appliance.cli.commands" not in imported


def test_help_imports_nothing_of_the_server() -> None:
    heavy = {"boto3", "sqlalchemy", "alembic", "litestar", "uvicorn", "rich"}
    imported = python(
        "import sys\nfrom seb_appliance.cli import run\nrun(['--help'])\nprint(*sys.modules)\n"
    )
    assert not heavy & set(imported.splitlines()[-1].split())


def test_a_command_that_talks_to_an_appliance_imports_nothing_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("seb_x")
    heavy = ["boto3", "sqlalchemy", "alembic", "litestar", "uvicorn", "uvloop", "rich"]
    code = (
        f"import sys\nfor name in {heavy}: sys.modules[name] = None\n"
        "from seb_appliance.cli import run\n"
        f"where = ['--url', 'http://127.0.0.1:9', '--key-file', '{tmp_path}/key']\n"
        "commands = [['topics', 'list'], ['groups', 'list'], ['api-keys', 'list'], ['status'],\n"
        "            ['consume', 't']]\n"
        "print([run([*command, *where]) for command in commands])\n"
    )
    assert python(code) == "[69, 69, 69, 69, 69]\n"


def test_the_base_install_says_what_the_server_needs() -> None:
    code = (
        "import sys; sys.modules['rich.console'] = None\n"
        "sys.modules['seb_appliance.ops.serve.process'] = None\n"
        "from seb_appliance.cli.errors import need_server\n"
        "from seb_appliance.errors import StartError\n"
        "try:\n"
        "    with need_server():\n"
        "        raise ModuleNotFoundError('no', name='litestar')\n"
        "except StartError as error: print(error.detail)\n"
    )
    assert "pip install 'seb-appliance[server]'" in python(code)


@pytest.mark.parametrize("group", [[], ["admin"]])
def test_a_group_without_a_command_shows_its_help(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(group) == 0
    assert "Usage: seb" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["serve", "--prot", "1"], ["serve", "extra"], ["server"], ["admin", "reset"]]
)
def test_a_wrong_argument_is_told_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 78
    told = capsys.readouterr().err
    assert told.startswith("seb: ")
    assert told.count("\n") == 1


def test_a_wrong_setting_ends_with_the_exit_code_of_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEB_DATA", str(tmp_path))
    monkeypatch.setenv("SEB_BUCKT", "x")
    assert run(["doctor"]) == 78
    assert "do you mean SEB_BUCKET?" in capsys.readouterr().err


def test_what_fails_ends_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["admin", "reset-key", "--data", str(tmp_path)]) == 1
    assert "no appliance runs" in capsys.readouterr().err


def test_what_a_stranger_named_does_not_command_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bucket" / "_seb" / "snapshots"
    folder.mkdir(parents=True)
    (folder.parent / "bucket.json").write_text(f'{{"bucket_id": "{"00" * 16}", "mode": "A"}}')
    (folder / "\x1b]0;owned\x07").touch()
    bucket = f"file:{folder.parents[1]}"
    assert run(["restore", "--bucket", bucket, "--data", str(tmp_path / "data")]) == 74
    told = capsys.readouterr().err
    assert "snapshots/\\x1b]0;owned\\x07 is not a snapshot" in told
    assert told.count("\n") == 1


def test_an_interruption_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(seb, "main", interrupt)
    assert run(["serve"]) == 130
    assert capsys.readouterr().err == ""


def test_doctor_finds_a_directory_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bucket = tmp_path / "bucket"
    arguments = ["--bucket", f"file:{bucket}", "--data", str(tmp_path / "local")]
    assert run(["doctor", "--json", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "fit to run"
    assert report["settings"]["bucket"] == {"value": f"file:{bucket}", "source": "--bucket"}
    assert report["settings"]["port"] == {"value": "51313", "source": "default"}
    assert report["bucket"]["store allows"].startswith("A")
    assert set(report["machine"]) >= {"sqlite", "clock", "disk for data", "disk for bucket"}
    assert run(["doctor", *arguments]) == 0
    assert "fit to run" in capsys.readouterr().out


def test_doctor_says_in_the_verdict_that_there_are_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def told(_: DirectoryStore) -> list[str]:
        return ["versioning is enabled"]

    monkeypatch.setattr(DirectoryStore, "check_configuration", told)
    arguments = ["--bucket", f"file:{tmp_path / 'bucket'}", "--data", str(tmp_path / "local")]
    assert run(["doctor", "--json", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "fit to run, but see the warnings"
    assert report["bucket"]["checks"]["bucket settings"] == "note  see warnings"
    assert report["bucket"]["warnings"] == ["versioning is enabled"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["doctor"], 0),
        (["fsck"], 74),
        (["inspect", "key"], 74),
        (["import", "--from=old", "--dry-run"], 74),
        (["restore", "--verify"], 74),
        (["clone", "--into=file:copy"], 74),
    ],
)
def test_a_command_that_only_looks_makes_no_folder(
    command: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEB_BUCKET", "file:deep/bucket")
    arguments = ["--bucket=file:deep/bucket"] if command[0] == "inspect" else []
    assert run([*command, *arguments]) == code
    assert list(tmp_path.iterdir()) == []


def test_doctor_names_all_of_the_server_that_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.distribution

    def distribution(name: str) -> metadata.Distribution:
        if name in ("boto3", "litestar"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metadata, "distribution", distribution)
    assert run(["doctor"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "boto3, litestar are not installed: pip install 'seb-appliance[server]'" in told.err
    assert list(tmp_path.iterdir()) == []


def test_doctor_finds_a_bucket_unfit_whose_objects_were_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = tmp_path / "bucket" / "_seb" / "journal"
    journal.mkdir(parents=True)
    (journal / "00000000000000000007.seb").write_bytes(b"left")
    arguments = [f"--bucket=file:{tmp_path / 'bucket'}", f"--data={tmp_path / 'data'}"]
    assert run(["doctor", *arguments]) == 74
    assert "part of the bucket is missing" in capsys.readouterr().out


def test_doctor_finds_a_bucket_unfit_that_cannot_be_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seb_appliance.ops.checks.checkup.ANSWER_WITHIN_S", 0.1)
    monkeypatch.setenv("SEB_S3_SECRET_ACCESS_KEY", "hush")
    arguments = ["--bucket", "s3://orders/seb", "--data", str(tmp_path), "--s3-region", "eu-1"]
    arguments += ["--s3-endpoint", "http://127.0.0.1:9", "--s3-access-key-id", "x", "--json"]
    assert run(["doctor", *arguments]) == 69
    shown = capsys.readouterr().out
    assert json.loads(shown)["verdict"].startswith("not fit: ")
    assert "hush" not in shown


def test_inspect_tells_a_bucket_that_cannot_be_reached_from_one_without_the_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEB_S3_SECRET_ACCESS_KEY", "hush")
    away = ["--s3-endpoint", "http://127.0.0.1:9", "--s3-access-key-id", "x", "--s3-region", "eu-1"]
    assert run(["inspect", "a", "--bucket", "s3://orders/seb", *away]) == 69
    assert run(["inspect", "a", "--bucket", f"file:{tmp_path}"]) == 1
