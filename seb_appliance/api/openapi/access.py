"""API keys and the audit, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Final

from seb_appliance.api.openapi import parameters
from seb_appliance.api.openapi.document import Content, Operation, Reply, ref
from seb_appliance.api.openapi.manage import REMOVAL_ERRORS
from seb_appliance.api.openapi.records import WRITE_ERRORS
from seb_appliance.api.routes.manage.api_keys import (
    ApiKeyChanges,
    ApiKeyMade,
    ApiKeyOut,
    ApiKeysOut,
    NewApiKey,
    QuotaChanges,
    Rotation,
)
from seb_appliance.api.routes.manage.audit import AuditOut, AuditPageOut
from seb_appliance.errors import ApiKeyNotFoundError, LastAdminKeyError

_JSON: Final = "application/json"
_NEW_API_KEY: Final = {
    "name": "checkout",
    "description": "writes orders from the shop",
    "grants": [{"operation": "consume", "topics": "orders.*", "groups": "lake.**"}],
    "quotas": {
        "requests_per_second": 200,
        "bytes_in_per_second": 1048576,
        "bytes_out_per_second": None,
    },
    "expires": None,
    "disabled": False,
}
_API_KEY: Final = {
    "api_key_id": "k3m9x2ap",
    **_NEW_API_KEY,
    "created": "2026-11-21T10:00:00.000123Z",
    "overlap_until": None,
    "last_used": "2026-11-21T10:05:00.000123Z",
}
_CHANGES: Final = {"disabled": True, "quotas": {"requests_per_second": None}}
_ACTION: Final = {
    "number": 41,
    "at": "2026-11-21T10:00:00.000123Z",
    "actor": "k3m9x2ap",
    "address": "192.0.2.7",
    "user_agent": "curl/7.88.1",
    "action": "topic_changed",
    "subject_kind": "topic",
    "subject": "orders.eu",
    "before": {"topic_id": 3, "settings": {"linger_ms": None}},
    "after": {"topic_id": 3, "settings": {"linger_ms": 100}},
}
_API_KEY_REPLY: Final = {_JSON: Content(schema=ref(ApiKeyOut), example=_API_KEY)}
_MADE_REPLY: Final = {
    _JSON: Content(schema=ref(ApiKeyMade), example={**_API_KEY, "secret": "seb_k3m9x2ap_…_…"})
}

API_KEYS: Final = [
    Operation(
        method="GET",
        path="/v1/api-keys",
        operation_id="listApiKeys",
        tag="API keys",
        summary="List the API keys, without their secrets",
        replies={
            200: Reply(
                description="API keys",
                content={_JSON: Content(schema=ref(ApiKeysOut), example={"api_keys": [_API_KEY]})},
            )
        },
    ),
    Operation(
        method="POST",
        path="/v1/api-keys",
        operation_id="createApiKey",
        tag="API keys",
        summary="Make an API key; its secret is shown in this answer only",
        body={_JSON: Content(schema=ref(NewApiKey), example=_NEW_API_KEY)},
        replies={201: Reply(description="The API key with its secret", content=_MADE_REPLY)},
        errors=WRITE_ERRORS,
    ),
    Operation(
        method="GET",
        path="/v1/api-keys/{api_key_id}",
        operation_id="getApiKey",
        tag="API keys",
        summary="Show an API key, without its secret",
        parameters=[parameters.API_KEY_ID],
        replies={200: Reply(description="The API key", content=_API_KEY_REPLY)},
        errors=(ApiKeyNotFoundError,),
    ),
    Operation(
        method="PATCH",
        path="/v1/api-keys/{api_key_id}",
        operation_id="changeApiKey",
        tag="API keys",
        summary="Change what is named: name, description, grants, expiry, disabled, quotas",
        description="In force for every request that begins after the answer. The last admin key "
        "cannot be disabled, made to expire, or lose its grant.",
        parameters=[parameters.API_KEY_ID],
        body={_JSON: Content(schema=ref(ApiKeyChanges), example=_CHANGES)},
        replies={200: Reply(description="The API key as it is now", content=_API_KEY_REPLY)},
        errors=(*WRITE_ERRORS, ApiKeyNotFoundError, LastAdminKeyError),
    ),
    Operation(
        method="POST",
        path="/v1/api-keys/{api_key_id}/rotate",
        operation_id="rotateApiKey",
        tag="API keys",
        summary="Give an API key a new secret, shown in this answer only",
        description="The secret of now works beside the new one for `overlap` (24h unless said; at "
        "most 30d; `0s` ends it at once). Id, grants and quotas stay. An older secret, "
        "whose overlap is not over, works no more.",
        parameters=[parameters.API_KEY_ID],
        body={_JSON: Content(schema=ref(Rotation), example={"overlap": "24h"})},
        body_required=False,
        replies={200: Reply(description="The API key with its new secret", content=_MADE_REPLY)},
        errors=(*WRITE_ERRORS, ApiKeyNotFoundError),
    ),
    Operation(
        method="DELETE",
        path="/v1/api-keys/{api_key_id}",
        operation_id="revokeApiKey",
        tag="API keys",
        summary="Revoke an API key, durably and at once",
        parameters=[parameters.API_KEY_ID],
        replies={204: Reply(description="Revoked")},
        errors=(*REMOVAL_ERRORS, ApiKeyNotFoundError, LastAdminKeyError),
    ),
]
AUDIT: Final = [
    Operation(
        method="GET",
        path="/v1/audit",
        operation_id="readAudit",
        tag="Audit",
        summary="What was done to topics, groups and API keys: who, from where, before and after",
        description="Newest first. 10,000 actions are kept: who noted most of one action loses "
        "the oldest of these. Refused actions are not among them.",
        parameters=parameters.AUDIT,
        replies={
            200: Reply(
                description="Actions",
                content={
                    _JSON: Content(
                        schema=ref(AuditPageOut), example={"audit": [_ACTION], "next_before": 41}
                    )
                },
            )
        },
    )
]
OPERATIONS: Final = [*API_KEYS, *AUDIT]
SCHEMAS: Final = [
    NewApiKey,
    ApiKeyChanges,
    QuotaChanges,
    Rotation,
    ApiKeyOut,
    ApiKeyMade,
    ApiKeysOut,
    AuditOut,
    AuditPageOut,
]
