"""The admin page of a running appliance, as a client without a browser sees it."""

from __future__ import annotations

from dataclasses import dataclass

import httpx2

from seb_appliance.broker.access.audit import AT_THE_MACHINE
from seb_appliance.formats.operations import Role
from tests.support.appliance import RunningAppliance

PASSWORD = "correct horse battery"
_hashed: list[str] = []


async def add_user(seb: RunningAppliance, name: str, role: Role) -> None:
    if not _hashed:  # once: it is made to take long
        _hashed.append(await seb.appliance.passwords.hash(PASSWORD))
    await seb.appliance.broker.accounts.add(name, role, _hashed[0], AT_THE_MACHINE)


@dataclass
class Visitor:
    """A client with a cookie jar; `headers` as a browser on our own page sends them."""

    client: httpx2.AsyncClient
    origin: str

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.client.get(path, headers=headers)

    async def post(self, path: str, **fields: str) -> httpx2.Response:
        headers = {"origin": self.origin, "content-type": "application/x-www-form-urlencoded"}
        return await self.client.post(path, data=fields, headers=headers)

    async def log_in(self, name: str, password: str = PASSWORD, **fields: str) -> httpx2.Response:
        return await self.post("/ui/login", name=name, password=password, **fields)

    @property
    def token(self) -> str | None:
        return self.client.cookies.get("seb_session")


def visitor(seb: RunningAppliance) -> Visitor:
    """Nobody yet. The caller closes its client."""
    return Visitor(seb.client_with(None), seb.base_url)
