"""uvicorn around the API, every setting explicit; signals are the process's business, not its."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from seb_appliance.api.app import create_app
from seb_appliance.api.http_protocol import SebHttpProtocol
from seb_appliance.api.options import ApiOptions
from seb_appliance.assembly import Appliance
from seb_appliance.bundled import bundled
from seb_appliance.samples import samples
from seb_appliance.status import status

_KEEP_ALIVE_S = 75  # longer than clients keep theirs: never closed under a request
_GRACE_S = 2  # answers are on their way by then: the broker has drained before
_STATIC = Path(__file__).parent / "ui" / "static"


class HttpServer(uvicorn.Server):
    def __init__(self, appliance: Appliance) -> None:
        settings = appliance.settings
        app = create_app(
            appliance.broker,
            options=ApiOptions(
                pages=bundled("templates") / "pages",
                static=_STATIC,
                max_request_bytes=settings.max_request_bytes,
                metrics_public=settings.metrics_public,
                failpoints=appliance.failpoints,
            ),
            samples=lambda: samples(appliance),
            status=lambda: status(appliance),
        )
        super().__init__(
            uvicorn.Config(
                app,
                http=SebHttpProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=True,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
