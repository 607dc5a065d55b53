"""The docs say what is there: settings, error codes, metrics, commands, the version."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest
import yaml

from seb_appliance import __version__, errors
from seb_appliance.cli import seb
from seb_appliance.errors import SebError, StartError, StoreError
from seb_appliance.ops.checks.findings import CODES
from seb_appliance.ops.cost.prices import PROVIDERS
from seb_appliance.protocols.inlets.inlets import InletWanted
from seb_appliance.protocols.inlets.settings import Scheme
from seb_appliance.setting_kinds import Setting
from seb_appliance.settings import SETTINGS

ARCHITECTURE_LINES_MAX = 150
ARCHITECTURE_WORDS_MAX = 1_800
BUDGETS = ("pending", "reading", "following")
ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"
DOCS = {
    path.relative_to(PAGES).as_posix(): path.read_text(encoding="utf-8")
    for path in PAGES.rglob("*.md")
}
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ALL = {
    "README.md": README,
    "CONTRIBUTING.md": CONTRIBUTING,
    **{f"docs/{name}": text for name, text in DOCS.items()},
}


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
        (package / name).read_text() for name in ("ops/serve/process.py", "ops/checks/check.py")
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


def test_the_page_of_inlets_names_every_setting_and_scheme() -> None:
    page = DOCS["INLETS.md"]
    settings = re.findall(r"^\| `(\w+)`", page.partition("## Schemes")[0], re.MULTILINE)
    assert set(settings) == set(InletWanted.__struct_fields__)
    schemes = page.partition("## Schemes")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", schemes, re.MULTILINE) == list(get_args(Scheme))


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
    reports = (
        package / "ops/serve/status.py",
        package / "ops/serve/protocols.py",
        package / "protocols/inlets/reporting.py",
        package / "protocols/subscriptions/running.py",
        package / "protocols/durable_streams/delivering.py",
        package / "protocols/mqtt/listening.py",
        package / "protocols/kafka/listening.py",
        package / "protocols/syslog/listening.py",
    )
    for path in (*package.glob("broker/*.py"), *reports):
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
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    ours = words[: words.index("--")] if "--" in words else words  # behind it: another command
    for word in ours:
        if word.startswith("--"):
            assert word.partition("=")[0].rstrip(".,;:)") in flags | {"--help"}, line


@pytest.mark.parametrize("name", ALL)
def test_a_file_that_the_docs_link_to_exists(name: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", ALL[name]):
        assert ((ROOT / name).parent / target).exists(), target


def anchors(name: str) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", ALL[name], re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", ALL)
def test_a_heading_that_the_docs_link_to_exists(name: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([\w-]+)\)", ALL[name]):
        page = ((ROOT / name).parent / target).resolve() if target else ROOT / name
        assert anchor in anchors(page.relative_to(ROOT).as_posix()), f"{target}#{anchor}"


@pytest.mark.parametrize("folder", ["docs", "docs/decisions"])
def test_the_index_of_a_folder_names_each_of_its_pages(folder: str) -> None:
    named = re.findall(
        r"\]\(([^)#:]+)\)", (ROOT / folder / "README.md").read_text(encoding="utf-8")
    )
    pages = {path.name for path in (ROOT / folder).glob("*.md")} - {"README.md"}
    assert pages <= set(named), pages - set(named)


def test_each_decision_has_its_four_parts() -> None:
    for name in DOCS:
        if name.startswith("decisions/") and name != "decisions/README.md":
            for record in DOCS[name].split("\n## ")[1:]:
                parts = re.findall(r"^- \*\*(\w+):\*\* ", record, re.MULTILINE)
                expected = ["Context", "Decision", "Consequences", "Rejected"]
                assert parts == expected, f"{name}: {record.splitlines()[0]}"


def test_the_architecture_is_one_page_and_names_only_what_exists() -> None:
    text = DOCS["ARCHITECTURE.md"]
    assert len(text.splitlines()) <= ARCHITECTURE_LINES_MAX
    assert len(text.split()) <= ARCHITECTURE_WORDS_MAX
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", text))
    assert len(named) > 40
    for path in named:
        assert (ROOT / path).exists() or (ROOT / "seb_appliance" / path).exists(), path


def test_the_changelog_has_an_entry_for_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(__version__)}\b", changelog, re.MULTILINE)
