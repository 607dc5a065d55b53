"""Whoever looks at queues that nobody works on gets the figures, and wakes none of them."""

from __future__ import annotations

from seb_appliance.broker.queues import views
from seb_appliance.broker.queues.views import QueueView
from seb_appliance.broker.values import From
from seb_appliance.formats.queues.queues import QueueSettings
from tests.unit.broker.queues.conftest import Work


async def test_an_idle_queue_tells_what_its_first_taker_would_find(work: Work) -> None:
    await work.house.appended("t.a", *[b"%d" % n for n in range(6)])
    await work.house.appended("t.b", b"x", b"y")
    await work.house.appended("u", b"z")
    await work.house.appended("none", b"-")
    await work.put("t.*", "u", "u", "absent")
    taken = await work.take(9)
    await work.ack(taken[1], taken[3])
    await work.reject(taken[4])
    await work.house.done(work.house.broker.topics.trim("t.a", 1))
    work.restart()
    await work.house.clock.advance(7)
    idle: QueueView = await work.view()
    assert work.queues.live() == []
    assert [(one.topic, one.waiting, one.acked, one.rejected) for one in idle.topics] == [
        ("t.a", 2, 2, 1),
        ("t.b", 2, 0, 0),
        ("u", 1, 0, 0),
    ]
    assert all(one.oldest_s >= 7 for one in idle.topics)
    await work.queues.extend("q", ["wakes it"], 1_000)
    assert len(work.queues.live()) == 1
    assert await work.view() == idle


async def test_looking_at_many_queues_wakes_none(work: Work, monkeypatch) -> None:
    monkeypatch.setattr(views, "_PATTERNS_AT_ONCE", 2)
    for name in ("a.1", "a.2", "b.1"):
        await work.house.appended(name, b"x")
    wanted = {"p": ("a.*",), "q": ("b.*", "**.1"), "r": ("a.2", "a.*"), "s": ("c.*",)}
    for name, topics in wanted.items():
        await work.house.done(work.queues.put(name, QueueSettings(topics=topics)))
    found = await work.queues.views.of(work.queues.all())
    assert {view.name: [one.topic for one in view.topics] for view in found} == {
        "p": ["a.1", "a.2"],
        "q": ["a.1", "b.1"],
        "r": ["a.1", "a.2"],
        "s": [],
    }
    assert await work.queues.held("p", 10) == []
    assert await work.queues.topics_of("p") == ["a.1", "a.2"]
    began = await work.house.done(work.queues.restart("q", From(earliest=True), None))
    assert began == {"a.1": 0, "b.1": 0}
    assert work.queues.live() == []
