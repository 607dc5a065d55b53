"""Send an event with the CloudEvents SDK, in both modes of HTTP: send.py ID."""

import sys
import urllib.parse
import urllib.request
from datetime import UTC, datetime

from cloudevents.core.bindings.http import to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

URL = "http://127.0.0.1:51313/v1/topics/from.cloudevents/records"

for mode, encode in (("binary", to_binary), ("structured", to_structured)):
    attributes = {
        "specversion": "1.0",
        "id": f"{sys.argv[1]}-{mode}",
        "source": "/cellar/sensor",
        "type": "com.example.read",
        "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),  # when it happened, not when it is sent
        "datacontenttype": "application/json",
    }
    message = encode(CloudEvent(attributes, {"celsius": 12}), JSONFormat())
    headers = {
        **message.headers,
        "Authorization": "Bearer API_KEY",
        "Idempotency-Key": urllib.parse.quote(attributes["source"] + " " + attributes["id"]),
    }
    request = urllib.request.Request(URL, message.body, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        print(answer.read().decode())
