"""The docs say what is there: settings, error codes, metrics, commands, the version."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from seb_appliance import __version__, errors
from seb_appliance.cli import seb
from seb_appliance.errors import SebError, StartError, StoreError
from seb_appliance.ops.checks.findings import CODES
from seb_appliance.ops.cost.prices import PROVIDERS
from seb_appliance.settings import SETTINGS, Setting

BUDGETS = ("pending", "reading", "following")
ROOT = Path(__file__).parents[2]
DOCS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ALL = {"README.md": README, "CONTRIBUTING.md": CONTRIBUTING, **DOCS}


def settings_row(setting: Setting) -> str:
    """The row of a setting in docs/OPERATIONS.md."""
    default = setting.words(setting.default) or "-"
    if setting.default is not None:
        default = f"`{default}`"
    where = f"`{setting.flag}` only" if setting.flag_only else f"`{setting.variable}`"
    return f"| `{setting.name}` | {where} | {default} | {setting.range_words} | {setting.help} |"


def error_classes(parent: type[SebError] = SebError) -> Iterator[type[SebError]]:
    for child in parent.__subclasses__():
        if child.__module__ == errors.__name__ and not issubclass(child, StoreError | StartError):
            yield child
            yield from error_classes(child)


def error_row(error: type[SebError]) -> str:
    """The row of an error in docs/ERRORS.md, up to what to do about it."""
    retry = "yes" if error.retryable else "no"
    effects = "depends" if error is errors.FencedError else error.side_effects
    return f"| `{error.code}` | {error.status} | {error.title} | {retry} | {effects} |"


@pytest.mark.parametrize("setting", [s for s in SETTINGS if not s.variable_only])
def test_every_setting_has_its_row(setting: Setting) -> None:
    assert settings_row(setting) in DOCS["OPERATIONS.md"]


def test_the_table_of_settings_has_no_row_too_many() -> None:
    named = re.findall(
        r"^\| `(\w+)` \| `(?:SEB_\w+|--[\w-]+)`", DOCS["OPERATIONS.md"], re.MULTILINE
    )
    assert named == [s.name for s in SETTINGS if not s.variable_only]


def test_every_error_code_has_its_row() -> None:
    codes = {error.code: error for error in error_classes() if "code" in vars(error)}
    for error in codes.values():
        assert error_row(error) in DOCS["ERRORS.md"]
    documented = re.findall(r"^\| `(\w+)` \| \d{3} \|", DOCS["ERRORS.md"], re.MULTILINE)
    assert sorted(documented) == sorted({*codes, SebError.code})


def test_every_code_of_a_check_is_documented() -> None:
    section = DOCS["OPERATIONS.md"].partition("## Checking: seb fsck")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", section, re.MULTILINE)
    assert {code for row in rows for code in re.findall(r"[a-z_]+", row)} == set(CODES)


def test_every_exit_code_is_documented() -> None:
    documented = {
        int(code) for code in re.findall(r"^\| (\d+) \|", DOCS["OPERATIONS.md"], re.MULTILINE)
    }
    package = ROOT / "seb_appliance"
    app = "".join(
        (package / name).read_text()
        for name in ("ops/serve/process.py", "ops/checks/bucket_check.py")
    )
    pattern = r"^EXIT_\w+(?:: Final)? = (\d+)"
    of_app = {int(code) for code in re.findall(pattern, app, re.MULTILINE)}
    direct = StartError.__subclasses__()
    errors = (StartError, *direct, *(error for one in direct for error in one.__subclasses__()))
    of_errors = {error.exit_code for error in errors}
    assert of_errors | of_app | {0, 130} == documented


def test_every_metric_is_documented() -> None:
    documented = re.findall(r"^\| `(seb_\w+)`", DOCS["METRICS.md"], re.MULTILINE)
    assert metrics() == set(documented)
    assert len(documented) == len(set(documented))


def test_the_dashboard_is_what_its_script_makes() -> None:
    script = ROOT / "docs" / "make_dashboard.py"
    made: str = runpy.run_path(str(script))["text"]()
    assert (ROOT / "docs" / "dashboard.json").read_text(encoding="utf-8") == made


@pytest.mark.parametrize("name", ["dashboard.json", "alerts.yml"])
def test_dashboard_and_alerts_ask_for_metrics_that_are_exported(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    asked = {re.sub(r"_bucket$", "", found) for found in re.findall(r"\bseb_\w+", text)}
    assert asked
    assert asked <= metrics()


def test_every_alert_says_what_it_means_and_what_to_look_at() -> None:
    (group,) = yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in {"page", "warn"}
        assert set(rule["annotations"]) == {"summary", "look"}


def test_the_table_of_prices_says_what_is_counted() -> None:
    for name, prices in PROVIDERS.items():
        if name == "none":
            continue
        (row,) = re.findall(rf"^\| `{name}` .*$", DOCS["COST.md"], re.MULTILINE)
        assert prices.as_of in row
        for amount in (prices.storage_gb, prices.egress_gb, prices.fee):
            assert not amount or f"{amount:g} {prices.currency}" in row
        for found in prices.classes:
            assert not found.per_million or f"{found.per_million:.2f} {prices.currency}" in row


def metrics() -> set[str]:
    """The names that the code exports."""
    found = set()
    package = ROOT / "seb_appliance"
    for path in (*package.glob("broker/*.py"), package / "ops" / "serve" / "samples.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and re.fullmatch(r"seb_\w+", str(node.value)):
                found.add(str(node.value))
            elif isinstance(node, ast.JoinedStr):
                text = ast.unparse(node)[2:-1]
                if text.startswith("seb_{what}"):
                    found |= {text.replace("{what}", what) for what in BUDGETS}
    return found


def code_lines(text: str) -> Iterator[str]:
    """Lines of indented and fenced blocks, and what stands in backticks."""
    yield from re.findall(r"^ {4,}(.+)$", text, re.MULTILINE)
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("name", ALL)
def test_a_command_that_the_docs_name_exists(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    for line in code_lines(ALL[name]):
        words = line.removeprefix("$ ").split("#")[0].split()
        if words[:1] == ["make"] and len(words) > 1 and words[1].isalpha():
            assert words[1] in targets, line
        if words[:1] == ["seb"] and len(words) > 1 and words[1].isalpha():
            check_seb(words[1:], line)


def check_seb(words: list[str], line: str) -> None:
    command: click.Command = seb
    while isinstance(command, click.Group) and words and not words[0].startswith(("-", "…")):
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0].rstrip(".,;:)") in flags | {"--help"}, line


@pytest.mark.parametrize("name", ALL)
def test_a_file_that_the_docs_link_to_exists(name: str) -> None:
    folder = ROOT if name in {"README.md", "CONTRIBUTING.md"} else ROOT / "docs"
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", ALL[name]):
        assert (folder / target).exists(), target


def test_the_changelog_has_an_entry_for_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(__version__)}\b", changelog, re.MULTILINE)
