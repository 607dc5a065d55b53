"""What the shell offers to complete a word with: names that the appliance, or a profile, has.

Whoever waits for a completion is typing: it takes a moment or offers nothing, and never complains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

WITHIN_S: Final = 0.25  # the interpreter's start comes on top

Offer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _offers(find: Callable[[click.Context], list[str]]) -> Offer:
    def offer(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            names = find(context)
        except Exception:
            return []  # whatever it was, there is nobody to tell
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return offer


def _listed(path: str, rows: str, member: str) -> Callable[[click.Context], list[str]]:
    """Names out of a list of the HTTP API, in `member` of each of its `rows`."""

    def find(context: click.Context) -> list[str]:
        from seb_appliance.cli.options import settings_from
        from seb_appliance.cli.remote import url_and_key
        from seb_appliance.client.calling import Connection
        from seb_appliance.client.exchange import Endpoint

        given = {name: context.params.get(name) for name in ("url", "key_file", "profile")}
        settings = settings_from(context.params.get("config"), given)
        endpoint = Endpoint(*url_and_key(settings, runs_commands=False))

        async def ask() -> Any:
            connection = Connection(endpoint)
            async with asyncio.timeout(WITHIN_S):
                await connection.open()
                await connection.send(endpoint.request("GET", path))
                answer = await connection.receive()
            connection.close()
            return answer.json()

        return [row[member] for row in asyncio.run(ask())[rows]]

    return find


def _profiles(_: click.Context) -> list[str]:
    from seb_appliance.cli.profiles_file import load
    from seb_appliance.setting_sources import profiles_file

    return sorted(load(profiles_file()).profiles)


topic_names: Final = _offers(_listed("/v1/topics", "topics", "topic"))
group_names: Final = _offers(_listed("/v1/groups", "groups", "group"))
profile_names: Final = _offers(_profiles)
