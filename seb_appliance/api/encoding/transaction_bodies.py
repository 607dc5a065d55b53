"""The body of a transaction: records by topic, and a commit."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.record_json import (
    CountedRecord,
    Record,
    bad_json,
    decode_counted,
    to_columns,
)
from seb_appliance.api.routes.groups.offsets import Generation, Metadata
from seb_appliance.broker.append.appends import Transaction
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.errors import BadJsonError, RequestTooLargeError
from seb_appliance.formats.numbers import Whole


class NewCommit(msgspec.Struct, forbid_unknown_fields=True):
    """As the body of a commit, and the group. Every offset must go forward."""

    group: str
    offsets: Annotated[
        dict[str, Whole], msgspec.Meta(min_length=1, max_length=limits.OFFSETS_PER_COMMIT_MAX)
    ]
    metadata: dict[str, Metadata] = {}
    expected: dict[str, Whole | None] = {}
    topic_ids: dict[str, Whole] = {}
    generation: Generation | None = None


class NewTransaction(msgspec.Struct, forbid_unknown_fields=True):
    """Records by topic, and what a group has read. At least one of the two is there."""

    produce: Annotated[
        dict[str, list[Record]], msgspec.Meta(max_length=limits.TRANSACTION_TOPICS_MAX)
    ] = {}
    commit: NewCommit | None = None


class _Read(msgspec.Struct, forbid_unknown_fields=True):
    """A transaction whose records are counted, and whose commit is measured before it is read."""

    produce: Annotated[
        dict[str, list[CountedRecord]], msgspec.Meta(max_length=limits.TRANSACTION_TOPICS_MAX)
    ] = {}
    commit: msgspec.Raw = msgspec.Raw(b"null")


_decoder: Final = msgspec.json.Decoder(_Read)
_commit_decoder: Final = msgspec.json.Decoder(NewCommit | None)


def parse_transaction(body: bytes) -> Transaction:
    """Without its Idempotency-Key. Raises BadJsonError, RequestTooLargeError,
    RecordTooLargeError."""
    read, count = decode_counted(body or b"{}", _decoder)
    if count != sum(map(len, read.produce.values())):
        raise BadJsonError("A topic is named twice in produce.")
    for topic, records in read.produce.items():
        if not records:
            raise BadJsonError(f"The list of records for {topic[:128]!r} is empty.")
    produce = {
        topic: to_columns(records, partial("$.produce[{!r}][{}]".format, topic[:128]))
        for topic, records in read.produce.items()
    }
    return Transaction(produce, _commit(read.commit))


def _commit(sent: msgspec.Raw) -> Commit | None:
    if len(bytes(sent)) > limits.COMMIT_BYTES_MAX:
        raise RequestTooLargeError(
            f"A commit has at most {limits.COMMIT_BYTES_MAX} bytes, in a transaction too."
        )
    try:
        asked = _commit_decoder.decode(sent)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_json(error, where="commit: ") from error
    if asked is None:
        return None
    return Commit(
        asked.group,
        asked.offsets,
        asked.metadata,
        asked.expected,
        asked.topic_ids,
        asked.generation,
    )
