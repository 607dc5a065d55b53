"""Topics, groups and API keys, managed by asyncio programs."""

from __future__ import annotations

import random as random_numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

import msgspec

from seb_appliance.addresses import path_of
from seb_appliance.client.transport import Caller, Endpoint
from seb_appliance.clock import Clock, SystemClock

PATIENCE_S: Final = 60.0

Json = dict[str, Any]


class AsyncAdmin:
    """Methods return the parsed answers of the HTTP API (`/schema` of the appliance).

    A request that is safe to repeat is retried for up to `patience_s`. Other requests are sent
    once; `side_effects` of the error says whether the request may have been executed. All methods
    raise ApplianceError.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        patience_s: float = PATIENCE_S,
        clock: Clock | None = None,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        """Raises ConfigurationError."""
        self._caller = Caller(
            Endpoint(url, api_key),
            clock or SystemClock(),
            random,
            connections=4,
            patience_s=patience_s,
        )

    # --- topics ---

    async def create_topic(self, topic: str, /, **settings: object) -> Json:
        """Create the topic, or check that it exists with these `settings` (such as `linger_ms=20`).
        Safe to repeat."""
        return await self._send("PUT", path_of("topics", topic), settings, again=True)

    async def topics(self, pattern: str = "**") -> list[Json]:
        """Those that the API key may see, by name."""
        found: list[Json] = (await self._get("/v1/topics", {"pattern": pattern}))["topics"]
        return found

    async def topic(self, topic: str) -> Json:
        return await self._get(path_of("topics", topic))

    async def change_topic(self, topic: str, /, **settings: object) -> Json:
        """Change the named settings; None restores the appliance's default."""
        return await self._send("PATCH", path_of("topics", topic), settings, again=True)

    async def trim_topic(self, topic: str, before: int) -> Json:
        """Remove the records below an offset."""
        path = path_of("topics", topic, "trim")
        return await self._send("POST", path, {"before": before}, again=True)

    async def reopen_topic(self, topic: str) -> Json:
        """A closed stream takes records again."""
        return await self._send("POST", path_of("topics", topic, "reopen"), again=True)

    async def delete_topic(self, topic: str) -> None:
        await self._send("DELETE", path_of("topics", topic))

    # --- groups ---

    async def groups(self) -> list[Json]:
        """All that the API key may see, with their lag."""
        found: list[Json] = []
        after: str | None = None
        while True:
            page = await self._get("/v1/groups", {"after": after})
            found += page["groups"]
            after = page["next_after"]
            if after is None:
                return found

    async def group(self, group: str) -> Json:
        return await self._get(path_of("groups", group))

    async def commit(
        self,
        group: str,
        offsets: Mapping[str, int],
        *,
        allow_backward: bool = False,
        expected: Mapping[str, int | None] | None = None,
    ) -> Json:
        """Commit the next offset to read of each topic, all or none. `expected`: the offsets that
        must be committed now, None for none."""
        body = {
            "offsets": dict(offsets),
            "allow_backward": allow_backward,
            "expected": dict(expected or {}),
        }
        return await self._send("PUT", path_of("groups", group, "offsets"), body, again=True)

    async def reset_group(
        self,
        group: str,
        *,
        to: int | str | None = None,
        shift: int | None = None,
        topics: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> list[Json]:
        """Move the offsets of a group; returns `before` and `after` by topic. Give either `to` (an
        offset, `earliest`, `latest`, `-N`, `@time`) or `shift`."""
        asked = {"to": to, "shift": shift, "topics": None if topics is None else list(topics)}
        body = {name: given for name, given in asked.items() if given is not None}
        body["dry_run"] = dry_run
        path = path_of("groups", group, "reset")
        found: list[Json] = (await self._send("POST", path, body, again=shift is None))["topics"]
        return found

    async def delete_group(self, group: str) -> None:
        await self._send("DELETE", path_of("groups", group))

    # --- queues ---

    async def queues(self) -> list[Json]:
        """Those that the API key may see, by name."""
        found: list[Json] = (await self._get("/v1/queues"))["queues"]
        return found

    async def queue(self, queue: str) -> Json:
        """With what became of its records."""
        return await self._get(path_of("queues", queue))

    async def set_queue(self, queue: str, /, **settings: object) -> Json:
        """Make it, or replace its settings: `topics` and what docs/QUEUES.md lists. Safe to
        repeat."""
        return await self._send("PUT", path_of("queues", queue), settings, again=True)

    async def reset_queue(
        self, queue: str, to: int | str, *, topic: str | None = None, dry_run: bool = False
    ) -> list[Json]:
        """Hand out records again from an offset, `earliest`, `-N` or `@time` on, or drop what waits
        (`latest`). Returns `waiting` (before) and `offset` by topic. All leases end."""
        body = {"to": str(to), "topic": topic, "dry_run": dry_run}
        path = path_of("queues", queue, "reset")
        found: list[Json] = (await self._send("POST", path, body))["topics"]
        return found

    async def redrive_queue(self, queue: str, /, **which: object) -> Json:
        """Make records of dead letters again, each once. `which`: `offsets`, `topic`, `reason`,
        `to` and `dry_run`, as docs/QUEUES.md says. Returns `records` by topic, and how many were
        redriven `before`. Safe to repeat."""
        path, start = path_of("queues", queue, "redrive"), 0
        records, before = dict[str, int](), 0
        while True:
            done = await self._send("POST", path, {**which, "start": start}, again=True)
            before += done["before"]
            for topic, count in done["records"].items():
                records[topic] = records.get(topic, 0) + count
            if done["next_offset"] is None:
                return {"records": records, "before": before}
            start = done["next_offset"]

    async def delete_queue(self, queue: str) -> None:
        await self._send("DELETE", path_of("queues", queue))

    # --- inlets ---

    async def inlets(self) -> list[Json]:
        """Those of topics that the API key manages, by name."""
        found: list[Json] = (await self._get("/v1/inlets"))["inlets"]
        return found

    async def inlet(self, inlet: str) -> Json:
        """With its latest deliveries."""
        return await self._get(path_of("inlets", inlet))

    async def set_inlet(self, inlet: str, /, **settings: object) -> Json:
        """Make or replace it: `topic`, `verify`, `secrets` and what docs/INLETS.md lists. Safe to
        repeat, unless `keep_previous` comes without `secrets`."""
        again = _is_safe_to_repeat(settings)
        return await self._send("PUT", path_of("inlets", inlet), settings, again=again)

    async def delete_inlet(self, inlet: str) -> None:
        await self._send("DELETE", path_of("inlets", inlet))

    # --- subscriptions ---

    async def subscriptions(self) -> list[Json]:
        """Those to queues that the API key manages, by name."""
        found: list[Json] = (await self._get("/v1/subscriptions"))["subscriptions"]
        return found

    async def set_subscription(self, subscription: str, /, **settings: object) -> Json:
        """Make or replace it: `url` and what docs/PUSH.md lists. Safe to repeat, unless
        `keep_previous` comes without `secrets`."""
        path = path_of("subscriptions", subscription)
        return await self._send("PUT", path, settings, again=_is_safe_to_repeat(settings))

    async def delete_subscription(self, subscription: str) -> None:
        await self._send("DELETE", path_of("subscriptions", subscription))

    # --- API keys ---

    async def api_keys(self) -> list[Json]:
        found: list[Json] = (await self._get("/v1/api-keys"))["api_keys"]
        return found

    async def api_key(self, api_key_id: str) -> Json:
        return await self._get(path_of("api-keys", api_key_id))

    async def create_api_key(
        self, name: str, grants: Sequence[Mapping[str, str]], /, **more: object
    ) -> Json:
        """`secret` of the answer is the API key itself; it is shown only once. A grant is
        `{"operation": "consume", "topics": "orders.*", "groups": "lake"}`; `more`: `expires`,
        `description`, `quotas`, `unique_name` (refuse it if another API key has this name)."""
        body = {"name": name, "grants": [dict(grant) for grant in grants], **more}
        return await self._send("POST", "/v1/api-keys", body)

    async def change_api_key(self, api_key_id: str, /, **changes: object) -> Json:
        return await self._send("PATCH", path_of("api-keys", api_key_id), changes, again=True)

    async def rotate_api_key(self, api_key_id: str, *, overlap: str = "24h") -> Json:
        """`secret` of the answer is the new API key. The current one stays valid for `overlap`."""
        path = path_of("api-keys", api_key_id, "rotate")
        return await self._send("POST", path, {"overlap": overlap})

    async def revoke_api_key(self, api_key_id: str) -> None:
        """At once and for ever."""
        await self._send("DELETE", path_of("api-keys", api_key_id))

    # --- the appliance ---

    async def status(self) -> Json:
        return await self._get("/v1/status")

    async def close(self) -> None:
        self._caller.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _get(self, path: str, query: Mapping[str, object] | None = None) -> Json:
        return msgspec.json.decode((await self._caller.get(path, query)).body, type=Json)

    async def _send(
        self, method: str, path: str, content: object = None, *, again: bool = False
    ) -> Json:
        """The JSON of the answer, {} without a body. `again`: the request is safe to repeat."""
        body = None if content is None else msgspec.json.encode(content)
        request = self._caller.endpoint.request(method, path, body=body)
        answer = await self._caller.ask(request, is_known_again=again)
        return msgspec.json.decode(answer.body or b"{}", type=Json)


def _is_safe_to_repeat(settings: Mapping[str, object]) -> bool:
    """Each rotation to a random secret makes another one, and ends the one before the newest."""
    return not settings.get("keep_previous") or settings.get("secrets") is not None
