"""Log to Loki's push API with Python's logging: send.py COUNT."""

import logging
import sys
import time

import requests
from logging_loki import LokiHandler
from requests.adapters import HTTPAdapter
from urllib3.util import Retry


class Session(requests.Session):
    """To the topic `logs.loki-python`; repeats what is not answered with 2xx."""

    def __init__(self) -> None:
        super().__init__()
        self.headers["X-Scope-OrgID"] = "logs.loki-python"
        again = Retry(
            10, backoff_factor=0.5, allowed_methods=None, status_forcelist=[429, 503, 504]
        )
        self.mount("http://", HTTPAdapter(max_retries=again))
        self.mount("https://", HTTPAdapter(max_retries=again))


handler = LokiHandler(
    url="http://127.0.0.1:51313/loki/api/v1/push",
    auth=("loki", "API_KEY"),
    tags={"service": "shop"},
    version="1",
)
handler.emitter.session_class = Session
logger = logging.getLogger("cellar")
logger.setLevel(logging.INFO)
logger.addHandler(handler)

for number in range(int(sys.argv[1])):
    logger.info("bottle %d", number)
    time.sleep(0.05)
