"""How the broker is at this moment, for metrics and the cost meter: from memory, at once."""

from __future__ import annotations

from seb_appliance.broker.catalog import Catalog
from seb_appliance.broker.group_lag import GroupLag, furthest_behind
from seb_appliance.broker.sequencer import Sequencer
from seb_appliance.broker.share_views import ShareView, share_views
from seb_appliance.broker.shares import AllShares


class Gauges:
    def __init__(self, catalog: Catalog, sequencer: Sequencer, shares: AllShares) -> None:
        self._catalog = catalog
        self._sequencer = sequencer
        self._shares = shares

    def shares(self) -> list[ShareView]:
        """Of what all API keys use together, how much is used, and by whom most."""
        return share_views(self._shares, self._catalog)

    @property
    def window_bytes(self) -> int:
        """What the open window holds, about."""
        return self._sequencer.open_bytes

    def topic_sizes(self) -> dict[int, int]:
        """Bytes in force of each topic, by topic id."""
        return self._catalog.topic_sizes()

    def topic_names(self) -> dict[int, str]:
        """The names of all topics, by topic id."""
        return {topic.topic_id: topic.name for topic in self._catalog.topics()}

    def groups_behind(self) -> list[GroupLag]:
        """See `group_lag.furthest_behind`."""
        return furthest_behind(self._catalog)
