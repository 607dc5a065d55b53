"""Deliver what Svix would, signed by its library: deliver.py ID."""

import sys
import urllib.request
from datetime import UTC, datetime

from svix.webhooks import Webhook

now = datetime.now(UTC)
body = '{"type": "user.created", "data": {"id": "user_1"}}'
headers = {
    "Content-Type": "application/json",
    "svix-id": sys.argv[1],
    "svix-timestamp": str(int(now.timestamp())),
    "svix-signature": Webhook("SECRET").sign(sys.argv[1], now, body),
}
url = "http://127.0.0.1:51313/v1/inlets/svix"
request = urllib.request.Request(url, body.encode(), headers)
with urllib.request.urlopen(request, timeout=30) as answer:
    print(answer.read().decode())
