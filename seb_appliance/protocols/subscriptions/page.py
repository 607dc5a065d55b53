"""The pages of subscriptions: state, last requests with their answers, and every setting."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final

import msgspec
from litestar.types import ASGIApp

from seb_appliance.api.encoding.parameters import position
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import BadRequestError, QueueNotFoundError
from seb_appliance.formats.declared import Declared
from seb_appliance.protocols.subscriptions.delivering import Sent
from seb_appliance.protocols.subscriptions.running import Subscriptions, no_such_subscription
from seb_appliance.protocols.subscriptions.settings import SETTINGS
from seb_appliance.protocols.subscriptions.subscriptions import (
    State,
    Subscription,
    SubscriptionWanted,
    shown,
)
from seb_appliance.ui.app import Section
from seb_appliance.ui.forms import Form, parsed
from seb_appliance.ui.lists import FIELDS, Column, as_they_are, having, linked, listed, quiet
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.units import ago, pill

_PATH: Final = "/ui/subscriptions"
_NEW: Final = "/ui/new-subscription"
_REQUESTS_SHOWN: Final = 50
_TOPICS: Final = Declared(
    "names", "Topics and patterns, separated by commas", "What its queue reads.", name="topics"
)
_DECLARED: Final = {"url": SETTINGS["url"], "topics": _TOPICS, **SETTINGS}
_MORE: Final = frozenset(SETTINGS) - {"url", "body", "batch", "description"}
_FIELDS: Final = frozenset({*_DECLARED, "secret"})
_CREATES: Final = {
    "field": "subscription",
    "label": "Name, also of its queue",
    "secret": "Signing secret, whsec_… (empty: a random one)",
    "button": "Create the subscription",
}
Page = Callable[..., Coroutine[Any, Any, ASGIApp]]


def section(options: ApiOptions) -> Section:
    """For the navigation of the admin page."""

    all_of_them = options.beside[Subscriptions]

    def of(page: Page) -> Page:
        return partial(page, all_of_them)

    routes, one, new = Routes(), of(_one), of(_new)
    below = "/subscriptions/{subscription:str}"
    routes.get("/subscriptions", FIELDS)(of(_show))
    routes.get("/new-subscription")(new)
    routes.post("/new-subscription", _FIELDS | {"subscription"}, again=new)(of(_create))
    routes.get(below)(one)
    routes.post(below, _FIELDS, again=one)(of(_change))
    routes.post(f"{below}/pause", again=one)(partial(_state, all_of_them, "paused"))
    routes.post(f"{below}/resume", again=one)(partial(_state, all_of_them, "active"))
    routes.post(f"{below}/test", again=one)(of(_test))
    routes.post(f"{below}/replay", {"offset"}, again=one)(of(_replay))
    routes.post(f"{below}/headers", {"headers"}, again=one)(of(_headers))
    routes.post(f"{below}/rotate", {"secret"}, again=one)(of(_rotate))
    routes.post(f"{below}/end-previous", again=one)(of(_end_previous))
    routes.post(f"{below}/delete", {"name"}, again=one)(of(_delete))
    return Section("Subscriptions", _PATH, routes)


def page_of(beside: Mapping[type, Any], queue: str) -> str | None:
    """The path of the page of the subscription that works on this queue, if there is one."""
    all_of_them: Subscriptions = beside[Subscriptions]
    return None if all_of_them.find(queue) is None else f"{_PATH}/{queue}"


async def _show(all_of_them: Subscriptions, visit: Visit) -> ASGIApp:
    words = visit.form.text("filter")
    found = await having(words, all_of_them.all(), lambda one: f"{one.name} {one.settings.url}")
    columns = _columns(all_of_them, visit.now_us)
    listing = await listed(visit, "subscription-rows", columns, found, as_they_are)
    parts = ["subscription-rows"]
    return visit.page("subscriptions", parts=parts, address=listing.address, listing=listing)


def _columns(all_of_them: Subscriptions, now_us: int) -> list[Column[Subscription, Subscription]]:
    none, url = quiet("none since the start"), attrgetter("settings.url")

    def last(one: Subscription) -> Sent | None:
        log = all_of_them.worker(one).log
        return log[-1] if log else None

    def sent_us(one: Subscription) -> int | None:
        sent = last(one)
        return None if sent is None else sent.at_us

    def sent(one: Subscription) -> str:
        return none if sent_us(one) is None else ago(sent_us(one), now_us)

    def state(one: Subscription) -> str:
        return "failing" if all_of_them.worker(one).is_failing else one.settings.state

    def status(one: Subscription) -> int | None:
        sent = last(one)
        return None if sent is None else sent.status

    return [
        Column(
            "name", "Name", lambda one: linked(one.name, f"{_PATH}/{one.name}"), attrgetter("name")
        ),
        Column("url", "URL", url, url, "value"),
        Column("state", "State", lambda one: pill(state(one)), state, "nowrap"),
        Column("sent", "Last request", sent, sent_us, "nowrap"),
        Column(
            "status", "Status", lambda one: str(status(one) or "none" if last(one) else "-"), status
        ),
    ]


async def _new(_: Subscriptions, visit: Visit, problem: FormProblem | None = None) -> ASGIApp:
    values = dict.fromkeys(("subscription", *_FIELDS), "") | visit.form.values
    return visit.page(
        "subscription_new",
        values=values,
        fields=_DECLARED.values(),
        more=_MORE,
        path=_NEW,
        problem=problem,
        creates=_CREATES,
    )


async def _create(all_of_them: Subscriptions, visit: Visit) -> ASGIApp:
    name = check_topic_name(visit.form.text("subscription"), "subscription")
    if all_of_them.find(name) is not None:
        raise BadRequestError(f"There is a subscription {name} already.")
    return await _saved(all_of_them, visit, name, _wanted(visit.form))


async def _one(
    all_of_them: Subscriptions, visit: Visit, subscription: str, problem: FormProblem | None = None
) -> ASGIApp:
    found = _found(all_of_them, subscription)
    worker = all_of_them.worker(found)
    try:
        topics = visit.broker.queues.get(found.name).settings.topics
    except QueueNotFoundError:
        topics = ()
    members = {**{name: getattr(found.settings, name) for name in SETTINGS}, "topics": topics}
    values = {n: "" if v is None else _DECLARED[n].text(v) for n, v in members.items()}
    return visit.page(
        "subscription",
        parts=["subscription-requests"],
        subscription=found,
        worker=worker,
        requests=list(islice(reversed(worker.log), _REQUESTS_SHOWN)),
        values=values | (problem.values if problem else {}),
        fields=_DECLARED.values(),
        more=_MORE,
        path=f"{_PATH}/{subscription}",
        problem=problem,
    )


async def _change(all_of_them: Subscriptions, visit: Visit, subscription: str) -> ASGIApp:
    _found(all_of_them, subscription)
    return await _saved(all_of_them, visit, subscription, _wanted(visit.form))


async def _state(
    all_of_them: Subscriptions, state: State, visit: Visit, subscription: str
) -> ASGIApp:
    await all_of_them.set_state(subscription, state, "", visit.actor)
    return visit.see_other(f"{_PATH}/{subscription}", f"The subscription is {state}.")


async def _test(all_of_them: Subscriptions, visit: Visit, subscription: str) -> ASGIApp:
    sent = await all_of_them.test(subscription)
    words = f"The test was answered with {sent.status}." if sent.status else sent.detail
    return visit.see_other(f"{_PATH}/{subscription}", words)


async def _replay(all_of_them: Subscriptions, visit: Visit, subscription: str) -> ASGIApp:
    found, start = _found(all_of_them, subscription), position(visit.form.text("offset"), "offset")
    await visit.broker.queues.restart(found.name, start, None, visit.actor)
    return visit.see_other(f"{_PATH}/{subscription}", "The queue has begun again.")


async def _headers(all_of_them: Subscriptions, visit: Visit, subscription: str) -> ASGIApp:
    """All of them are replaced: what was set before is not shown."""
    members = shown(_found(all_of_them, subscription).settings)
    lines = [line.partition(":") for line in visit.form.raw("headers").splitlines() if line.strip()]
    if any(not colon for _, colon, _ in lines):
        raise BadRequestError("A header is a line such as X-Kind: order.")
    headers = {name.strip(): value.strip() for name, _, value in lines}
    return await _saved(
        all_of_them, visit, subscription, SubscriptionWanted(**members, headers=headers)
    )


async def _rotate(all_of_them: Subscriptions, visit: Visit, subscription: str) -> ASGIApp:
    given, members = visit.form.text("secret"), shown(_found(all_of_them, subscription).settings)
    secrets = (given,) if given else None
    wanted = SubscriptionWanted(**members, secrets=secrets, keep_previous=True)
    return await _saved(all_of_them, visit, subscription, wanted)


async def _end_previous(all_of_them: Subscriptions, visit: Visit, subscription: str) -> ASGIApp:
    members = shown(_found(all_of_them, subscription).settings)
    wanted = SubscriptionWanted(**members, end_previous=True)
    return await _saved(all_of_them, visit, subscription, wanted)


async def _delete(all_of_them: Subscriptions, visit: Visit, subscription: str) -> ASGIApp:
    found = _found(all_of_them, subscription)
    if visit.form.text("name") != found.name:
        raise BadRequestError("This is not the name of the subscription; nothing was deleted.")
    await all_of_them.remove(found.name, visit.actor)
    return visit.see_other(_PATH, f"{found.name} is deleted. Its queue stays.")


async def _saved(
    all_of_them: Subscriptions, visit: Visit, name: str, wanted: SubscriptionWanted
) -> ASGIApp:
    _, secret = await all_of_them.save(name, wanted, visit.actor)
    if secret is None:
        return visit.see_other(f"{_PATH}/{name}", "The changes are saved.")
    return visit.page("subscription_secret", status=201, subscription=name, secret=secret)


def _found(all_of_them: Subscriptions, name: str) -> Subscription:
    """Raises NotFoundError."""
    found = all_of_them.find(name)
    if found is None:
        raise no_such_subscription(name)
    return found


def _wanted(form: Form) -> SubscriptionWanted:
    """What the form asks for. Raises BadRequestError."""
    given = {name: parsed(one, form) for name, one in _DECLARED.items()}
    members = {name: value for name, value in given.items() if value not in (None, ())}
    if secret := form.text("secret"):
        members["secrets"] = [secret]
    try:
        return msgspec.convert(members, SubscriptionWanted)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{error}.") from error
