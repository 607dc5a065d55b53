"""Profiles: which one counts, where its API key comes from, and who may read their file."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from seb_appliance.setting_sources import profiles_file

ELSEWHERE = "http://192.0.2.1:51313"


@pytest.fixture(autouse=True)
def _nothing_else_is_said(seb, monkeypatch):
    """No variable says where and who, and there is a folder for the profiles of this test."""
    monkeypatch.delenv("SEB_URL")
    monkeypatch.delenv("SEB_KEY_FILE")
    monkeypatch.setenv("SEB_DATA", str(seb.folder / "no-appliance-here"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(seb.folder / "config"))


def path(seb) -> Path:
    return seb.folder / "config" / "seb" / "config.toml"


def write(seb, text: str, mode: int = 0o600) -> None:
    path(seb).parent.mkdir(parents=True, exist_ok=True)
    path(seb).write_text(text)
    path(seb).chmod(mode)


def test_the_first_profile_is_the_default_and_says_where_and_who(seb):
    url, key = seb.appliance.base_url, seb.appliance.admin_key.encode()
    assert "added, the default" in seb.good("profiles", "add", "here", "--url", url, stdin=key).out
    assert seb.good("status")
    assert stat.S_IMODE(path(seb).stat().st_mode) == 0o600
    assert stat.S_IMODE(path(seb).parent.stat().st_mode) == 0o700
    shown = seb.good("profiles").out
    assert "default" in shown
    assert seb.appliance.admin_key not in shown


def test_an_api_key_may_come_from_a_file_or_a_command(seb):
    url = seb.appliance.base_url
    seb.good("profiles", "add", "file", "--url", url, "--key-file", str(seb.key_file))
    command = f"cat '{seb.key_file}'"
    seb.good("profiles", "add", "command", "--url", url, "--key-command", command)
    for name in ("file", "command"):
        assert seb.good("status", "--profile", name)
    assert seb.appliance.admin_key not in path(seb).read_text()
    rows = seb.good("profiles", "list", "--json").json["profiles"]
    assert [(row["profile"], row["key_from"], row["default"]) for row in rows] == [
        ("command", f"command: {command}", False),
        ("file", str(seb.key_file), True),
    ]


def test_another_one_may_be_used_and_one_removed(seb):
    for name in ("a", "b"):
        seb.good("profiles", "add", name, "--url", ELSEWHERE, stdin=b"seb_x")
    assert seb.good("profiles", "use", "b", "--json").json == {"default": "b"}
    assert "not confirmed" in seb.refused("profiles", "remove", "b", stdin=b"n\n")
    seb.good("profiles", "remove", "b", "--yes")
    assert "no API key: " in seb.refused("status", code=78), "nothing is the default now"
    assert seb.refused("profiles", "use", "b", code=78).endswith("only: a")
    assert "no profile 'b'" in seb.refused("status", "--profile", "b", code=78)


def test_a_flag_goes_before_a_variable_before_a_profile(seb, monkeypatch):
    here, key = seb.appliance.base_url, str(seb.key_file)
    seb.good("profiles", "add", "elsewhere", "--url", ELSEWHERE, stdin=b"seb_x")
    seb.good("profiles", "add", "here", "--url", here, "--key-file", key)
    assert seb.good("status", "--url", here, "--key-file", key)
    monkeypatch.setenv("SEB_PROFILE", "here")
    assert seb.good("status")
    monkeypatch.setenv("SEB_PROFILE", "elsewhere")
    assert seb.good("status", "--profile", "here")
    monkeypatch.setenv("SEB_URL", here)
    monkeypatch.setenv("SEB_KEY_FILE", key)
    assert seb.good("status"), "the variables go before the profile of a variable"
    monkeypatch.setenv("SEB_URL", ELSEWHERE)
    assert seb.good("status", "--profile", "here"), "a profile named by a flag goes before them"


@pytest.mark.parametrize("flags", [["--profile", "here"], []])
def test_the_api_key_of_a_profile_goes_nowhere_else(seb, flags):
    key = str(seb.key_file)
    seb.good("profiles", "add", "here", "--url", seb.appliance.base_url, "--key-file", key)
    assert "API key" in seb.refused("status", "--url", ELSEWHERE, *flags, code=78)


def test_a_profile_that_nobody_named_gives_way_to_anything_said(seb, monkeypatch):
    seb.good("profiles", "add", "elsewhere", "--url", ELSEWHERE, stdin=b"seb_x")
    monkeypatch.setenv("SEB_KEY_FILE", str(seb.key_file))
    assert seb.good("status", "--url", seb.appliance.base_url)


def test_a_file_with_an_api_key_that_others_may_read_is_not_used(seb):
    text = f'default = "a"\n[profiles.a]\nurl = "{seb.appliance.base_url}"\n'
    with_key = text + f'key = "{seb.appliance.admin_key}"\n'
    write(seb, with_key, 0o640)
    told = seb.refused("status", code=78)
    assert "others may read it (mode 0640): chmod 600" in told
    assert seb.appliance.admin_key not in told
    write(seb, with_key)
    assert seb.good("status")
    write(seb, text + f'key_file = "{seb.key_file}"\n', 0o644)
    assert seb.good("status"), "it holds no secret"


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "a = " + "[" * 5_000,
        "a = " + "9" * 5_000,
        "colour = 1",
        "default = 1",
        "profiles = 1",
        "[profiles.a]\nkey = 'seb_x'",
        "[profiles.a]\nurl = 'http://a'\ncolour = 'x'",
        "[profiles.a]\nurl = 'http://a'\nkey = 'seb_x'\nkey_file = 'x'",
        "[profiles.a]\nurl = 1",
        "[profiles.a]\nurl = 'ftp://a'",
        "[profiles.'a b']\nurl = 'http://a'",
        "default = 'b'\n[profiles.a]\nurl = 'http://a'",
    ],
)
def test_a_file_that_is_not_understood_is_told_in_one_sentence(seb, text):
    write(seb, text)
    assert seb.refused("status", code=78)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("false", "returned non-zero exit status 1"),
        ("echo hush hush", "does not hold an API key"),
        ("no-such-command-anywhere", "No such file"),
        ("'", "No closing quotation"),
    ],
)
def test_a_command_that_gives_no_api_key_is_told(seb, command, told):
    url = seb.appliance.base_url
    seb.good("profiles", "add", "a", "--url", url, "--key-command", command)
    said = seb.refused("status", code=78)
    assert told in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "a b", "--url", ELSEWHERE],
        ["add", "a"],
        ["add", "a", "--url", "ftp://x"],
        ["add", "a", "--url", ELSEWHERE, "--key-file", "x", "--key-command", "y"],
        ["add", "a", "--url", ELSEWHERE],
    ],
)
def test_what_makes_no_profile_is_refused_and_nothing_is_written(seb, arguments):
    assert seb.refused("profiles", *arguments, code=78)
    assert not path(seb).exists()


def test_a_text_of_any_characters_comes_back_from_the_file(seb):
    command = "say \"\\\x7f\té\" 'x'"
    seb.good("profiles", "add", "a", "--url", ELSEWHERE, "--key-command", command)
    shown = seb.good("profiles", "list", "--json").json["profiles"][0]
    assert shown["key_from"] == f"command: {command}"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HOME": "/h"}, "/h/.config/seb/config.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}, "/c/seb/config.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}, "/h/.config/seb/config.toml"),
    ],
)
def test_the_file_is_where_the_xdg_specification_says(variables, expected):
    assert profiles_file(variables) == Path(expected)
