"""uvicorn around the API, every setting explicit; signals are the process's business, not its."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import uvicorn

from seb_appliance.api.encoding.record_encoding import ndjson_parts
from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.api.server.app import create_app
from seb_appliance.api.server.fast_lane import FastLaneProtocol
from seb_appliance.api.server.http_protocol import NO_UPGRADES, SebHttpProtocol, Upgrade
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.api.server.plain_answers import PlainAnswers
from seb_appliance.broker.status import Status
from seb_appliance.bundled import bundled
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.ops.serve.control_users import set_password_command
from seb_appliance.ops.serve.definitions_page import DefinitionsOfPage
from seb_appliance.ops.serve.protocols import PROTOCOLS, openapi_json, sections, table_store
from seb_appliance.ops.serve.status import cost, samples, status, telemetry
from seb_appliance.ops.serve.ui_facts import (
    bill_rows,
    checks_shown,
    cost_shown,
    effects_of,
    setting_rows,
    topic_costs,
)
from seb_appliance.protocols.subscriptions.page import page_of
from seb_appliance.ui.app import site
from seb_appliance.ui.options import UiOptions

_KEEP_ALIVE_S = 75  # longer than clients keep theirs: never closed under a request
_GRACE_S = 2  # answers are on their way by then: the broker has drained before
_STATIC = Path(__file__).parents[2] / "ui" / "static"


def ui_options(appliance: Appliance) -> UiOptions:
    """The options of the admin page for this appliance."""
    return UiOptions(
        templates=bundled("templates"),
        static=_STATIC,
        telemetry=lambda: telemetry(appliance),
        history=appliance.history.history,
        lags=appliance.history.lags,
        rates=appliance.history.rates,
        settings=lambda: setting_rows(appliance),
        passwords=appliance.passwords,
        clock=appliance.clock,
        random_bytes=os.urandom,
        ndjson=lambda result: ndjson_parts(result, "text"),
        snapshot=appliance.publish_snapshot,
        cost=lambda: cost_shown(appliance.cost.recent()),
        bill=lambda: bill_rows(appliance),
        topic_costs=lambda: topic_costs(appliance.cost.recent()),
        setting_cost=lambda topic, changes: effects_of(
            appliance.broker, appliance.cost, topic, changes, appliance.clock.wall_us()
        ),
        checks=lambda: checks_shown(appliance.checks),
        begin_check=appliance.checks.begin,
        first_log_in=set_password_command(appliance.settings.data),
        subscription_page=lambda queue: page_of(appliance.beside, queue),
    )


def api_options(appliance: Appliance) -> ApiOptions:
    """What the API is told of this appliance."""
    settings = appliance.settings
    return ApiOptions(
        pages=bundled("templates") / "pages",
        static=_STATIC,
        max_request_bytes=settings.max_request_bytes,
        metrics_public=settings.metrics_public,
        cors_origins=settings.web_origins,
        trusted_proxies=settings.proxies,
        failpoints=appliance.failpoints,
        traces=appliance.traces,
        parser=appliance.parser,
        secret_box=appliance.secret_box,
        streams_open=settings.durable_streams_open,
        table_store=table_store(settings),
        table_reader_key=settings.table_reader,
        beside=appliance.beside,
    )


class HttpServer(uvicorn.Server):
    """`fast_lane` False: every request goes through the application. `more_samples`: metrics of
    other ports. `upgrades`: what WebSocket carries, by path."""

    def __init__(
        self,
        appliance: Appliance,
        *,
        fast_lane: bool = True,
        more_samples: Callable[[], Iterable[Sample]] = tuple,
        upgrades: Mapping[bytes, Upgrade] = NO_UPGRADES,
    ) -> None:
        self.upgrades = dict(upgrades)
        options = api_options(appliance)
        self.plain_answers = PlainAnswers(
            appliance.broker, options, [one.plain for one in PROTOCOLS if one.plain is not None]
        )
        definitions = DefinitionsOfPage(lambda: app)
        pages = replace(ui_options(appliance), definitions=definitions)

        async def measured() -> Iterable[Sample]:
            figures = await telemetry(appliance)
            own = samples(appliance, figures, self.plain_answers.answered, app.asked)
            return chain(own, more_samples())

        async def state() -> Status:
            return await status(appliance, await appliance.broker.topics.totals())

        app = create_app(
            appliance.broker,
            options=options,
            samples=measured,
            status=state,
            snapshot=appliance.publish_snapshot,
            protocols=PROTOCOLS,
            described=openapi_json,
            site=site(appliance.broker, pages, sections(options)),
            costs=lambda: cost(appliance.cost),
        )
        for protocol in PROTOCOLS:
            protocol.begin(appliance.broker, options)
        with_fast_lane = partial(FastLaneProtocol, answers=self.plain_answers)
        http = partial(
            with_fast_lane if fast_lane else SebHttpProtocol,
            strangers=appliance.broker.strangers,
            upgrades=self.upgrades,
        )
        super().__init__(
            uvicorn.Config(
                app,
                http=http,  # type: ignore[arg-type]
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
