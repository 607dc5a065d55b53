"""What the operator is told of all inlets: metrics, and secrets that cannot be decrypted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import lru_cache

from seb_appliance import limits
from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.api.server.options import ApiOptions, SecretBox
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.ports import DocumentRow
from seb_appliance.errors import ConfigurationError, NotReadyError
from seb_appliance.protocols.inlets.delivering import counts
from seb_appliance.protocols.inlets.inlets import KIND, inlet_of, secrets_of

_log = logging.getLogger(__name__)


def begin(broker: Broker, options: ApiOptions) -> None:
    """The key of the secrets is not in the bucket: a new machine does not have it."""
    if lost := _without_secrets(broker, options):
        _log.warning(
            "The secrets of %d inlets cannot be decrypted (%s). These inlets answer 503. Restore "
            "the file secrets_key_file, or set their secrets again.",
            len(lost),
            ", ".join(lost[:10]),
        )


def samples(broker: Broker, options: ApiOptions) -> Iterator[Sample]:
    """The metrics of the inlets."""
    for outcome, count in counts.items():
        text = "Deliveries to inlets, by outcome."
        labels = {"outcome": outcome}
        yield Sample("seb_inlet_deliveries_total", text, "counter", count, labels)
    lost = len(_without_secrets(broker, options))
    text = "Inlets whose secrets cannot be decrypted; they answer 503."
    yield Sample("seb_inlets_without_secrets", text, "gauge", lost)


def _without_secrets(broker: Broker, options: ApiOptions) -> list[str]:
    return [
        row.name for row in broker.documents.of_kind(KIND) if not _can_open(row, options.secret_box)
    ]


@lru_cache(maxsize=limits.DOCUMENTS_MAX)
def _can_open(row: DocumentRow, box: SecretBox) -> bool:
    try:
        secrets_of(inlet_of(row).settings, box)
    except (NotReadyError, ConfigurationError):
        return False
    return True
