"""Send events with httpx: each is repeated until it is answered, and stored once."""

import time
import uuid

import httpx

URL = "http://127.0.0.1:51313/v1/topics/from.python/records?body=value"
REPEATED = {408, 429, 500, 502, 503, 504}


def send(client: httpx.Client, event: object) -> None:
    named = {"Idempotency-Key": str(uuid.uuid4())}
    for _ in range(60):
        try:
            answer = client.post(URL, json=event, headers=named)
        except httpx.TransportError:
            time.sleep(0.5)
            continue
        if answer.status_code not in REPEATED:
            answer.raise_for_status()
            return
        time.sleep(0.5)
    raise TimeoutError("not answered")


with httpx.Client(headers={"Authorization": "Bearer API_KEY"}, timeout=30) as client:
    for number in range(20):
        send(client, {"number": number})
