"""Topics, groups and API keys, managed by programs without an event loop."""

from __future__ import annotations

import functools

from seb_appliance.client.administering import PATIENCE_S, AsyncAdmin
from seb_appliance.client.blocking import Blocking, blocking


class Admin(Blocking[AsyncAdmin]):
    """As AsyncAdmin: the same methods, which block. May be used by several threads at once."""

    def __init__(self, url: str, api_key: str, *, patience_s: float = PATIENCE_S) -> None:
        """Raises ConfigurationError."""
        super().__init__(functools.partial(AsyncAdmin, url, api_key, patience_s=patience_s))

    create_topic = blocking(AsyncAdmin.create_topic)
    topics = blocking(AsyncAdmin.topics)
    topic = blocking(AsyncAdmin.topic)
    change_topic = blocking(AsyncAdmin.change_topic)
    trim_topic = blocking(AsyncAdmin.trim_topic)
    reopen_topic = blocking(AsyncAdmin.reopen_topic)
    delete_topic = blocking(AsyncAdmin.delete_topic)
    groups = blocking(AsyncAdmin.groups)
    group = blocking(AsyncAdmin.group)
    commit = blocking(AsyncAdmin.commit)
    reset_group = blocking(AsyncAdmin.reset_group)
    delete_group = blocking(AsyncAdmin.delete_group)
    api_keys = blocking(AsyncAdmin.api_keys)
    api_key = blocking(AsyncAdmin.api_key)
    create_api_key = blocking(AsyncAdmin.create_api_key)
    change_api_key = blocking(AsyncAdmin.change_api_key)
    rotate_api_key = blocking(AsyncAdmin.rotate_api_key)
    revoke_api_key = blocking(AsyncAdmin.revoke_api_key)
    status = blocking(AsyncAdmin.status)
