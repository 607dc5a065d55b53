"""Who may ask for what: a row for each operation of the OpenAPI document, and eleven who ask."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tests.support.go_client import ACCEPT, body_of, content_type

# What an operation asks of its caller. `see`: any grant on the topic; a group is seen by who may
# consume with it or manage it.
Need = Literal[
    "nothing", "any key", "see", "see group", "see queue", "consume", "work", "produce", "manage",
    "admin", "secret",
]  # fmt: skip

# API keys by their grants on what starts with `target`; `other` has them all on what does not, and
# `neighbour` on such topics, for the groups that start with it.
GRANTS: Final[dict[str, tuple[str, ...]]] = {
    "other": ("consume", "produce", "manage"),
    "neighbour": ("consume", "produce", "manage"),
    "reader": ("consume",),
    "worker": ("work",),
    "producer": ("produce",),
    "manager": ("manage",),
}
STRANGERS: Final = ("none", "wrong", "expired", "revoked")
PRINCIPALS: Final = (*STRANGERS, *GRANTS, "admin")

LET_IN: Final[dict[Need, frozenset[str]]] = {
    "nothing": frozenset(PRINCIPALS),
    "any key": frozenset({*GRANTS, "admin"}),
    "see": frozenset({"reader", "producer", "manager", "admin"}),
    "see group": frozenset({"reader", "manager", "admin"}),
    "see queue": frozenset({"reader", "worker", "manager", "admin"}),
    "consume": frozenset({"reader", "admin"}),
    "work": frozenset({"reader", "worker", "admin"}),
    "produce": frozenset({"producer", "admin"}),
    "manage": frozenset({"manager", "admin"}),
    "admin": frozenset({"admin"}),
    "secret": frozenset(),  # of an inlet: no API key helps
}


@dataclass(frozen=True, kw_only=True)
class Ask:
    """`status`: what the first caller gets who is let in. Names in braces, also in `json`, are
    filled in: topic, group, queue, generation, api_key_id, path."""

    need: Need
    status: int = 200
    query: str = ""
    json: Any = None
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


_TEXT: Final = {"content-type": "text/plain"}
_KEY: Final = {"key": "k"}
_NEW_KEY: Final = {"name": "new", "grants": [{"operation": "consume"}]}
_SEGMENT: Final = {"base_offset": 0, "last_offset": 0, "size_bytes": 1, "md5": "A" * 22 + "=="}
_GO_TOPIC: Final = "topic-name={topic}"
_INLET: Final = {"topic": "{topic}", "verify": {"scheme": "github"}, "secrets": ["a secret"]}
_PUSHED: Final = {"url": "http://127.0.0.1:9/"}
_WAKE: Final = {"wake_id": "w", "generation": 1}
_WAKES: Final = {"type": "pull-wake", "streams": ["{path}"], "wake_stream": "{path}/wakes"}
_STREAMS: Final = {"streams": [{"stream": {}, "values": [["1", "x"]]}]}
_SPLUNK: Final = (
    "pushSplunkEvents", "pushSplunkEvents2", "pushSplunkEvents3", "pushSplunkRaw", "pushSplunkRaw2"
)  # fmt: skip
_DELIVERIES: Final = [
    f"deliver{protocol}{secret}"
    for protocol in ("", "Otlp", "Loki", "Confluent", *(one[4:] for one in _SPLUNK))
    for secret in ("", "WithSecret")
]

ASKS: Final[dict[str, Ask]] = {
    # records
    "produce": Ask(need="produce", status=201, content=b"x"),
    "consume": Ask(need="consume"),
    "getRecord": Ask(need="consume"),
    "getManifest": Ask(need="consume"),
    "transact": Ask(need="produce", status=201, json={"produce": {"{topic}": [{"value": 1}]}}),
    # of many topics: whoever may read one asks, and sees those alone
    "readMany": Ask(need="consume", query="topics={topic}&format=json"),
    "makeTicket": Ask(need="consume", status=201, json={"topics": "{topic}"}),
    # record keys
    "listRecordKeys": Ask(need="consume"),
    "findRecordKeys": Ask(need="consume", json={}),
    "getLatestOfRecordKey": Ask(need="consume", query="key=k&fresh=true"),
    "findLatestOfRecordKey": Ask(need="consume", json=_KEY),
    "getHistoryOfRecordKey": Ask(need="consume", query="key=k"),
    "findHistoryOfRecordKey": Ask(need="consume", json=_KEY),
    "deleteRecordKey": Ask(need="produce", query="key=k"),
    # groups
    "listGroups": Ask(need="any key"),
    "getGroup": Ask(need="see group"),
    "consumeInGroup": Ask(need="consume"),
    "commitOffsets": Ask(need="consume", json={"offsets": {"{topic}": 1}}),
    "takeLease": Ask(need="consume", json={"holder": "h", "ttl_ms": 10_000}),
    "releaseLease": Ask(need="consume", status=204, query="generation={generation}"),
    "resetGroup": Ask(need="manage", json={"to": "earliest"}),
    "deleteGroup": Ask(need="manage", status=204),
    # work queues
    "listQueues": Ask(need="any key"),
    "getQueue": Ask(need="see queue"),
    "setQueue": Ask(need="admin", json={"topics": ["{topic}"]}),  # manage and consume
    "deleteQueue": Ask(need="manage", status=204),
    "takeRecords": Ask(need="work", json={}),
    "ackDeliveries": Ask(need="work", json={"deliveries": ["x"]}),
    "retryDeliveries": Ask(need="work", json={"deliveries": ["x"]}),
    "rejectDeliveries": Ask(need="work", json={"deliveries": ["x"]}),
    "extendDeliveries": Ask(need="work", json={"deliveries": ["x"], "lease_ms": 1000}),
    "resetQueue": Ask(need="admin", json={"to": "latest"}),  # manage and consume
    "redriveQueue": Ask(need="manage", status=400, json={}),  # it has no topic of dead letters
    # subscriptions of streams: their workers show the token of a wake
    "setStreamSubscription": Ask(need="admin", status=201, json=_WAKES),  # and consume, and produce
    "getStreamSubscription": Ask(need="consume"),
    "deleteStreamSubscription": Ask(need="admin", status=204),  # manage and consume
    "linkStreams": Ask(need="admin", status=204, json={"streams": ["{path}"]}),
    "unlinkStream": Ask(need="admin", status=204),
    "claimWake": Ask(need="consume", status=409, json={"worker": "one"}),
    "ackWake": Ask(need="secret", json={**_WAKE, "done": True}),
    "ackWebhookWake": Ask(need="secret", json={**_WAKE, "done": True}),
    "releaseWake": Ask(need="secret", json=_WAKE),
    "getStreamSigningKeys": Ask(need="nothing"),
    # subscriptions to them; nothing is sent to an address that is not public
    "listConnections": Ask(need="admin"),
    "closeConnection": Ask(need="admin", status=404),
    "listSubscriptions": Ask(need="any key"),
    "setSubscription": Ask(need="admin", json={**_PUSHED, "topics": ["{topic}"]}),
    "getSubscription": Ask(need="manage"),
    "deleteSubscription": Ask(need="manage", status=204),
    "listDeliveries": Ask(need="manage"),
    "testSubscription": Ask(need="manage"),
    "pauseSubscription": Ask(need="manage"),
    "resumeSubscription": Ask(need="manage"),
    "replaySubscription": Ask(need="admin", json={"offset": "earliest"}),  # manage and consume
    # topics
    "listTopics": Ask(need="any key"),
    "getTopic": Ask(need="see"),
    "checkEntry": Ask(need="any key", status=404),
    "createTopic": Ask(need="manage", json={"key_index": "history"}),
    "changeTopic": Ask(need="manage", json={"linger_ms": 5}),
    "trimTopic": Ask(need="manage", json={"before": 1}),
    "deleteTopic": Ask(need="manage", status=204),
    "reopenTopic": Ask(need="admin"),
    # tables, of which there is none here: a bucket in memory cannot hold one
    "listTables": Ask(need="any key"),
    "getTable": Ask(need="see", status=404),
    "pauseTable": Ask(need="manage", status=404),
    "resumeTable": Ask(need="manage", status=404),
    "repairTable": Ask(need="manage", status=404),
    "dropTable": Ask(need="manage", status=404),
    "querySql": Ask(need="any key", status=409, json={"sql": "SELECT 1"}),
    # compactions elsewhere: refused here for want of one, or of signed URLs
    "beginCompaction": Ask(need="manage", status=409),
    "getCompaction": Ask(need="manage", status=404),
    "giveUpCompaction": Ask(need="manage", status=404),
    "nameSegment": Ask(need="manage", status=404, json=_SEGMENT),
    "handOverSegments": Ask(
        need="manage", status=404, json={"compaction": "none", "segments": ["s"]}
    ),
    # operators
    "listApiKeys": Ask(need="admin"),
    "createApiKey": Ask(need="admin", status=201, json=_NEW_KEY),
    "getApiKey": Ask(need="admin"),
    "changeApiKey": Ask(need="admin", json={"description": "changed"}),
    "rotateApiKey": Ask(need="admin"),
    "revokeApiKey": Ask(need="admin", status=204),
    "readAudit": Ask(need="admin"),
    "getStatus": Ask(need="admin"),
    "getCost": Ask(need="admin"),
    "makeSnapshot": Ask(need="admin"),
    # the Go broker's API
    "goAddRecords": Ask(
        need="produce", status=201, query=_GO_TOPIC, content=body_of([b"x"]), headers=content_type()
    ),
    "goGetRecords": Ask(need="consume", query=f"{_GO_TOPIC}&offset=0", headers=ACCEPT),
    "goGetRecord": Ask(need="consume", query=f"{_GO_TOPIC}&offset=0"),
    "goGetTopic": Ask(need="see", query=_GO_TOPIC),
    # Durable Streams
    "createStream": Ask(need="manage", headers=_TEXT),
    "appendToStream": Ask(need="produce", status=204, content=b"x", headers=_TEXT),
    "readStream": Ask(need="consume"),
    "deleteStream": Ask(need="manage", status=204),
    # inlets: whoever has their secret delivers; nobody here has it
    "listInlets": Ask(need="any key"),
    "setInlet": Ask(need="manage", json=_INLET),
    "getInlet": Ask(need="manage"),
    "deleteInlet": Ask(need="manage", status=204),
    **dict.fromkeys(_DELIVERIES, Ask(need="secret", content=b"x")),
    # log shippers
    "pushLoki": Ask(
        need="produce", status=204, json=_STREAMS, headers={"x-scope-orgid": "{topic}"}
    ),
    **dict.fromkeys(_SPLUNK, Ask(need="produce", query="index={topic}", content=b'{"event":1}')),
    "pushConfluent": Ask(need="produce", json={"records": [{"value": 1}]}),
    "splunkHealth": Ask(need="nothing"),
    "splunkHealth2": Ask(need="nothing"),
    # the catalog of tables: there is none here, and one that must not be seen is not there
    "icebergConfig": Ask(need="any key"),
    "icebergNamespaces": Ask(need="any key"),
    "icebergNamespace": Ask(need="any key"),
    "icebergTables": Ask(need="any key"),
    "icebergViews": Ask(need="any key"),
    "icebergTable": Ask(need="consume", status=404),
    "icebergMetrics": Ask(need="consume", status=404, json={}),
    "icebergToken": Ask(need="any key", content=b"grant_type=client_credentials"),
    # for everybody
    "healthz": Ask(need="nothing"),
    "readyz": Ask(need="nothing"),
    "metrics": Ask(need="nothing"),  # from this machine
    "schemaPage": Ask(need="nothing"),
    "openapi": Ask(need="nothing"),
    "schemaAsset": Ask(need="nothing"),
}
