"""Log to Splunk's HTTP Event Collector with Python's logging: send.py COUNT."""

import logging
import sys
import time

from splunk_handler import SplunkHandler

handler = SplunkHandler(
    host="127.0.0.1",
    port="51313",
    protocol="http",
    verify=False,
    token="API_KEY",
    index="logs.splunk-python",
    source="shop",
    sourcetype="text",
    flush_interval=0.2,
    queue_size=100_000,
    retry_count=10,
    retry_backoff=0.5,
)
logger = logging.getLogger("cellar")
logger.setLevel(logging.INFO)
logger.addHandler(handler)

for number in range(int(sys.argv[1])):
    logger.info("bottle %d", number)
    time.sleep(0.05)
handler.wait_until_empty()  # else the batch that waits for its next attempt is lost
