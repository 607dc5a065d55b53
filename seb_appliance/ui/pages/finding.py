"""Find a page by a few letters: topics, groups, API keys, users, and the pages themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final
from urllib.parse import urlencode

from litestar.types import ASGIApp

from seb_appliance.broker.groups.consumer_groups import everybody
from seb_appliance.ui.page_context import Routes, Visit

routes = Routes()
_OF_EACH_KIND: Final = 8
# Lists that narrow down to what contains the same words.
_LISTS: Final = {
    "topic": ("all topics", "/ui/topics"),
    "group": ("all groups", "/ui/groups"),
    "API key": ("all API keys", "/ui/api-keys"),
    "user": ("all users", "/ui/users"),
}


@dataclass(frozen=True, slots=True)
class Place:
    kind: str
    name: str
    path: str


@routes.get("/find", {"q"})
async def show(visit: Visit) -> ASGIApp:
    words = visit.form.text("q").lower()
    return visit.page("find", parts=["found"], words=words, found=await _found(visit, words))


async def _found(visit: Visit, words: str) -> list[Place]:
    """The first places of each kind whose name contains the words, and the list of all if there
    are more."""
    broker = visit.broker
    groups, _ = await broker.groups.page(
        "", _OF_EACH_KIND + 1, lambda group, _topic: words in group.lower(), everybody
    )
    keys = [(key.name, key.api_key_id) for key in broker.access.all()]
    kinds: tuple[tuple[str, str, Iterable[tuple[str, str]]], ...] = (
        ("page", "", _pages(visit)),
        ("topic", "/ui/topics/", ((name, name) for name in broker.topics.names())),
        ("group", "/ui/groups/", ((view.group, view.group) for view in groups)),
        ("API key", "/ui/api-keys/", keys),
        ("user", "/ui/users/", ((user.name, user.name) for user in broker.accounts.all())),
    )
    return [place for kind in kinds for place in _places(*kind, words)]


def _places(kind: str, before: str, names: Iterable[tuple[str, str]], words: str) -> list[Place]:
    matching = list(islice(_matching(names, words), _OF_EACH_KIND + 1))
    places = [Place(kind, name, before + rest) for name, rest in matching[:_OF_EACH_KIND]]
    if len(matching) > _OF_EACH_KIND and kind in _LISTS:
        name, path = _LISTS[kind]
        places.append(Place("list", name, f"{path}?{urlencode({'filter': words})}"))
    return places


def _matching(names: Iterable[tuple[str, str]], words: str) -> Iterator[tuple[str, str]]:
    return ((name, rest) for name, rest in names if words in name.lower())


def _pages(visit: Visit) -> list[tuple[str, str]]:
    others = [("Definitions", "/ui/definitions"), ("API reference", "/schema")]
    made = [("Create a topic", "/ui/topics#create"), ("Create an API key", "/ui/api-keys/new")]
    return [*visit.desk.navigation, *others, *(made if visit.is_admin else [])]
