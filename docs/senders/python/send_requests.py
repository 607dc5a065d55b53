"""Send events with requests: each is repeated until it is answered, and stored once."""

import uuid

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

URL = "http://127.0.0.1:51313/v1/topics/from.python/records?body=value"

repeat = Retry(
    total=30,
    backoff_factor=0.2,
    backoff_max=5,
    status_forcelist=[408, 429, 500, 502, 503, 504],
    allowed_methods=None,  # POST, too: the Idempotency-Key makes it safe
)
session = requests.Session()
session.mount("http://", HTTPAdapter(max_retries=repeat))
session.mount("https://", HTTPAdapter(max_retries=repeat))
session.headers["Authorization"] = "Bearer API_KEY"

for number in range(20):
    named = {"Idempotency-Key": str(uuid.uuid4())}
    answer = session.post(URL, json={"number": number}, headers=named, timeout=30)
    answer.raise_for_status()
