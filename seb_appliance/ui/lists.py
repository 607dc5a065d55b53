"""Lists of a page: one declaration of columns, from which come order, filter, pages and choice.

A page declares a `Column` for each thing to know of a row and calls `listed`. What it returns is
drawn by `templates/partials/lists.html`, in a part of the page that htmx fetches alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from markupsafe import Markup, escape

from seb_appliance.errors import BadRequestError
from seb_appliance.tasks import in_slices
from seb_appliance.ui.forms import whole
from seb_appliance.ui.page_context import Visit, link

FIELDS: Final = frozenset({"filter", "sort", "page", "column"})
PER_PAGE: Final = 50
_CHOSEN: Final = ""  # a value of `column`: the form was sent, with or without columns
ItemT = TypeVar("ItemT")
RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Column(Generic[ItemT, RowT]):
    """`name`: in addresses. `cell`: what it shows of a row, text or Markup. `by`: what items are
    ordered by, numbers or texts, with None last in both directions; without `by` it gives no order.
    `is_shown`: unless the reader chooses other columns."""

    name: str
    title: str
    cell: Callable[[RowT], str]
    by: Callable[[ItemT], Any] | None = None
    look: Literal["", "number", "nowrap", "value", "key"] = ""
    is_shown: bool = True


@dataclass(frozen=True, slots=True)
class Heading:
    """Of a column that is shown. `path`: of the list in the order that a click asks for, "" if the
    column gives none. `order`: as `aria-sort` has it, "" if the list has another."""

    name: str
    title: str
    look: str
    path: str
    order: str


@dataclass(frozen=True, slots=True)
class Choice:
    name: str
    title: str
    is_shown: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a list. `part`: the id of its element. `path`: of the list without a query;
    `here`: with the one that leads to what is shown. `cells`: by row, in the order of `headings`.
    `first`: the number of the first row, from 1. `before` and `after`: paths, "" for none.
    `address`: as `here`, if the browser has another one, of the form."""

    part: str
    path: str
    here: str
    words: str
    sort: str
    headings: list[Heading]
    choices: list[Choice]
    cells: list[list[str]]
    first: int
    total: int
    before: str
    after: str
    address: str

    @property
    def last(self) -> int:
        return self.first + len(self.cells) - 1


async def listed(
    visit: Visit,
    part: str,
    columns: Sequence[Column[ItemT, RowT]],
    items: Sequence[ItemT],
    rows: Callable[[Sequence[ItemT]], Awaitable[list[RowT]]],
) -> Listing:
    """The page of `items` that the query asks for. `items` are those that match the filter, in
    order of the first column; `rows` gets what a page shows of some of them. Raises
    BadRequestError."""
    form, path = visit.form, visit.path
    sort = form.text("sort")
    shown = _shown(visit, part, columns)
    ordered = await _ordered(columns, items, sort)
    pages = max(1, -(-len(ordered) // PER_PAGE))
    number = min(whole(form.text("page", "1"), "page", smallest=1), pages)
    first = (number - 1) * PER_PAGE
    standard = [one.name for one in columns if one.is_shown]
    query: dict[str, str | list[str]] = {
        "filter": form.text("filter"),
        "sort": sort,
        "column": [] if shown == standard else shown,
    }

    def way(page: int = 1, **more: str) -> str:
        return link(path, **query | {"page": str(page) if page > 1 else ""} | more)

    drawn = [one for one in columns if one.name in shown or one is columns[0]]
    return Listing(
        part,
        path,
        way(number),
        form.text("filter"),
        sort,
        [_heading(one, sort or columns[0].name, way) for one in drawn],
        [Choice(one.name, one.title, one.name in shown) for one in columns[1:]],
        [
            [one.cell(row) for one in drawn]
            async for row in in_slices(await rows(ordered[first : first + PER_PAGE]))
        ],
        first + 1,
        len(ordered),
        way(number - 1) if number > 1 else "",
        way(number + 1) if number < pages else "",
        way(number) if _CHOSEN in form.all("column") else "",
    )


async def as_they_are(rows: Sequence[RowT]) -> list[RowT]:
    """For lists whose items are their rows."""
    return list(rows)


async def having(words: str, items: Iterable[ItemT], text: Callable[[ItemT], str]) -> list[ItemT]:
    """Those whose text contains the words, in small or capital letters."""
    lower = words.lower()
    return [one async for one in in_slices(items) if lower in text(one).lower()]


def is_asked(visit: Visit, *columns: str) -> bool:
    """Whether the list is to be ordered by one of these columns."""
    return visit.form.text("sort").removeprefix("-") in columns


def _shown(visit: Visit, part: str, columns: Sequence[Column[ItemT, RowT]]) -> list[str]:
    """The names of the columns that the query asks for, else of those that this session chose last,
    else of those that are shown to everybody. A choice in the form is remembered."""
    given, session = visit.form.all("column"), visit.session
    assert session is not None, visit.path
    if not given:
        given = session.columns.get(part, [one.name for one in columns if one.is_shown])
    found = [one.name for one in columns if one.name in given or one is columns[0]]
    if _CHOSEN in given:
        session.columns[part] = found
    return found


async def _ordered(
    columns: Sequence[Column[ItemT, RowT]], items: Sequence[ItemT], sort: str
) -> Sequence[ItemT]:
    """Raises BadRequestError."""
    name = sort.removeprefix("-")
    if not name:
        return items
    by = next((one.by for one in columns if one.name == name), None)
    if by is None:
        raise BadRequestError(f"This list has no order by {name[:100]!r}.")
    keys = [by(one) async for one in in_slices(items)]
    known = [i for i, key in enumerate(keys) if key is not None]
    # Keys of one type: Python orders 10,000 of them in two or three milliseconds.
    known.sort(key=keys.__getitem__, reverse=sort != name)
    return [items[i] for i in known] + [
        one for one, key in zip(items, keys, strict=True) if key is None
    ]


def _heading(one: Column[ItemT, RowT], sort: str, way: Callable[..., str]) -> Heading:
    name, order, path = one.name, "", ""
    if one.by is not None:
        order = {name: "ascending", f"-{name}": "descending"}.get(sort, "")
        # The first click shows the largest numbers and the first names.
        goes_down = order == "ascending" or (not order and one.look == "number")
        path = way(sort=f"-{name}" if goes_down else name)
    return Heading(name, one.title, one.look, path, order)


# What cells show.


def linked(text: str, path: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(path, text)


def quiet(text: str) -> Markup:
    return Markup('<span class="quiet">{}</span>').format(text)


def problem(text: str) -> Markup:
    return Markup('<span class="problem block">{}</span>').format(text)


def in_lines(parts: Iterable[str]) -> Markup:
    """One line each."""
    return Markup("").join(Markup('<span class="block">{}</span>').format(one) for one in parts)


def joined(*parts: str) -> Markup:
    return Markup(" ").join(map(escape, parts))


def of_template(visit: Visit, partial: str, **model: Any) -> Markup:
    """Of a partial, which escapes what it is given."""
    return Markup(visit.fragment(partial, **model))  # noqa: S704 - of a template
