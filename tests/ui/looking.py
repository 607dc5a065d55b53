"""The admin page as a browser's parser sees it: elements, attributes, texts and forms; and the
elements and attributes that we write, which are those of the templates."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

TEMPLATES: Final = Path(__file__).parents[2] / "templates"
_JINJA: Final = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
# What units.py makes, as no template does; svg's elements close themselves.
_OF_PYTHON: Final = frozenset({("time", "datetime"), ("time", "title")})
_URLS: Final = frozenset({"href", "src", "action", "formaction", "poster", "data"})
_PATHS_OF_OURS: Final = re.compile(r"/(?!/)|[#?]")


@dataclass
class Form:
    """`fields`: name and value as they are shown, and what may be chosen of each."""

    method: str
    action: str
    fields: dict[str, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    chosen: dict[str, list[str]] = field(default_factory=dict)


class Page(HTMLParser):
    """`said`: every text and every value of an attribute."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.urls: list[str] = []
        self.said: list[str] = []
        self.forms: list[Form] = []
        self.others: list[str] = []  # comments, declarations
        self._select = ""
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self._inside = tag
        given = {name: value or "" for name, value in attrs}
        for name, value in given.items():
            self.attributes.add((tag, name))
            self.said.append(value)
            if name in _URLS or (name.startswith("hx-") and value.startswith(("/", "http"))):
                self.urls.append(value)
        if tag == "form":
            self.forms.append(Form(given.get("method", "get"), given.get("action", "")))
        elif self.forms and tag in ("input", "button", "textarea", "select") and "name" in given:
            self._field(tag, given)
        elif self.forms and tag == "option" and self._select:
            self.forms[-1].chosen[self._select].append(given.get("value", ""))

    def _field(self, tag: str, given: dict[str, str]) -> None:
        form, name = self.forms[-1], given["name"]
        form.fields.setdefault(name, given.get("value", ""))
        if given.get("type") == "hidden":
            form.hidden.add(name)
        if tag == "select":
            self._select = name
            form.chosen[name] = []
        if given.get("type") in ("checkbox", "radio"):
            form.chosen.setdefault(name, []).append(given.get("value", "on"))

    def handle_data(self, data: str) -> None:
        assert self._inside != "script" or not data.strip(), f"a script of its own: {data[:100]}"
        assert self._inside != "style" or not data.strip(), f"a style of its own: {data[:100]}"
        self.said.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)

    def unknown_decl(self, data: str) -> None:
        self.others.append(data)


@cache
def ours() -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """The elements, and the attributes by element, of all templates."""
    elements: set[str] = {"time", "mark"}
    attributes = set(_OF_PYTHON)
    for template in TEMPLATES.rglob("*.html"):
        found = Page(_JINJA.sub("", template.read_text(encoding="utf-8")))
        elements |= found.elements
        attributes |= found.attributes
    return frozenset(elements), frozenset(attributes)


def looked_through(text: str) -> Page:
    """The page; it has no element, attribute, script or link but ours."""
    page = Page(text)
    elements, attributes = ours()
    assert page.elements <= elements, page.elements - elements
    assert page.attributes <= attributes, page.attributes - attributes
    assert not page.others, page.others
    for url in page.urls:
        assert _PATHS_OF_OURS.match(url) or not url, f"a link that leads elsewhere: {url}"
    return page
