"""The operation on several topics and a group at once, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Final

from seb_appliance.api.encoding.transaction_bodies import NewCommit, NewTransaction
from seb_appliance.api.openapi import parameters
from seb_appliance.api.openapi.document import Content, Operation, Reply, ref
from seb_appliance.api.openapi.records import (
    DURABILITY,
    NEW_RECORD,
    REPLAYED,
    TIME,
    WRITE_ERRORS,
)
from seb_appliance.api.routes.records.transactions import (
    CommittedOut,
    ProducedInTopic,
    TransactionOut,
)
from seb_appliance.errors import (
    CommitBackwardError,
    CommitBeyondEndError,
    IdempotencyMismatchError,
    OffsetConflictError,
    RecordTooLargeError,
    StaleGenerationError,
    TopicNotFoundError,
)

_JSON: Final = "application/json"

OPERATIONS: Final = [
    Operation(
        method="POST",
        path="/v1/transactions",
        operation_id="transact",
        tag="Records",
        summary="Append to several topics and commit a group's offsets, whole or not at all",
        description="Everything lies in one entry of the journal, or nothing is stored. Every "
        "offset of the commit must go forward (409 `commit_backward`): so a step that reads, works "
        "and writes can be sent again blindly and happens once. The API key needs `produce` on "
        "each topic written to, and `consume` on each topic and group committed.",
        parameters=[parameters.IDEMPOTENCY_KEY, parameters.TIMEOUT, parameters.CONTENT_ENCODING],
        body={
            _JSON: Content(
                schema=ref(NewTransaction),
                example={
                    "produce": {"invoices": [NEW_RECORD]},
                    "commit": {
                        "group": "billing",
                        "offsets": {"orders.eu": 78},
                        "expected": {"orders.eu": 77},
                    },
                },
            )
        },
        replies={
            201: Reply(
                description="Stored, all of it",
                content={
                    _JSON: Content(
                        schema=ref(TransactionOut),
                        example={
                            "produced": {
                                "invoices": {
                                    "topic_id": 4,
                                    "offset": 31,
                                    "count": 1,
                                    "last_offset": 31,
                                    "timestamp": TIME,
                                }
                            },
                            "committed": {"group": "billing", "offsets": {"orders.eu": 78}},
                        },
                    )
                },
                headers={**DURABILITY, **REPLAYED},
            )
        },
        errors=(
            *WRITE_ERRORS,
            RecordTooLargeError,
            TopicNotFoundError,
            CommitBeyondEndError,
            CommitBackwardError,
            OffsetConflictError,
            StaleGenerationError,
            IdempotencyMismatchError,
        ),
    ),
]
SCHEMAS: Final = [NewTransaction, NewCommit, TransactionOut, ProducedInTopic, CommittedOut]
