"""What MkDocs asks for the site: its pages are those of docs/README.md, and nothing is loaded from
other hosts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

_HERE: Final = Path(__file__).parent
_SHIM: Final = "iframe-worker.js"  # lets the search work in pages opened from a folder
_ROW: Final = re.compile(r"^\| \[[^]]+\]\(([^.)][^)]*)\)", re.MULTILINE)
_ELSEWHERE: Final = re.compile(r"https://unpkg\.com/iframe-worker/shim")


def on_config(config: Any) -> Any:
    """The navigation is what docs/README.md lists, in its order."""
    config["site_name"] = f"Seb Appliance {os.environ.get('VERSION', '')}".strip()
    text = (Path(config["docs_dir"]) / "README.md").read_text(encoding="utf-8")
    sections = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    pages = [[_file(path) for path in _ROW.findall(body)] for body in sections[1::2]]
    listed = [{title: paths} for title, paths in zip(sections[::2], pages, strict=True)]
    config["nav"] = [{"Documentation": "README.md"}, *listed]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Files outside docs/ are not on the site: they are named, not linked."""
    return re.sub(r"\[([^]]+)\]\((?:\.\./)+(?!docs/)([^)]+)\)", _named, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    return _ELSEWHERE.sub(page.url.count("/") * "../" + f"assets/{_SHIM}", output)


def on_post_template(output: str, **_: Any) -> str:
    return _ELSEWHERE.sub(f"assets/{_SHIM}", output)


def on_post_build(config: Any) -> None:
    target = Path(config["site_dir"]) / "assets" / _SHIM
    target.write_bytes((_HERE / "vendor" / _SHIM).read_bytes())


def _file(path: str) -> str:
    return f"{path}README.md" if path.endswith("/") else path


def _named(link: re.Match[str]) -> str:
    return f"{link[1]}" if link[1] == link[2].rpartition("/")[2] else f"{link[1]} (`{link[2]}`)"
