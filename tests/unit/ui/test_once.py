"""A form that is sent twice is done once, and both are told the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.errors import OutcomeUnknownError, OverloadedError
from seb_appliance.ui.answers import Sent, see_other
from seb_appliance.ui.sessions import Answer, SentBeforeError, SentForms
from tests.support.fakes import FakeClock, settle


class Work:
    """Done when it is let go, or fails with `error`."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None
        self.status = 303

    async def __call__(self) -> Answer:
        self.calls += 1
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return Answer(Sent(self.status, [(b"number", b"%d" % self.calls)]), "It is there.")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def forms(clock: FakeClock) -> SentForms:
    return SentForms(clock)


async def test_a_second_click_gets_the_answer_of_the_first(forms: SentForms) -> None:
    work = Work()
    first = asyncio.create_task(forms.once(b"form", work))
    second = asyncio.create_task(forms.once(b"form", work))
    await settle()
    first.cancel()  # as a browser breaks off the first request
    work.go.set()
    answer = await second
    assert answer.notice == "It is there."
    assert (await forms.once(b"form", work)) is answer
    assert work.calls == 1
    await forms.once(b"another form", work)
    assert work.calls == 2


@pytest.mark.parametrize("changed_nothing", [422, 200, OverloadedError("later")])
async def test_what_changed_nothing_can_be_sent_again(
    forms: SentForms, changed_nothing: int | Exception
) -> None:
    work = Work()
    work.go.set()
    if isinstance(changed_nothing, int):
        work.status = changed_nothing
        await forms.once(b"form", work)
    else:
        work.error = changed_nothing
        with pytest.raises(OverloadedError):
            await forms.once(b"form", work)
    work.error, work.status = None, 303
    await forms.once(b"form", work)
    assert work.calls == 2


async def test_what_may_have_happened_is_not_done_again(forms: SentForms) -> None:
    work = Work()
    work.go.set()
    work.error = OutcomeUnknownError("the bucket has not answered")
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            await forms.once(b"form", work)
    assert work.calls == 1


async def test_an_old_answer_is_forgotten_but_not_that_there_was_one(
    forms: SentForms, clock: FakeClock
) -> None:
    work = Work()
    work.go.set()
    await forms.once(b"form", work)
    await clock.advance(limits.FORM_ANSWER_S)
    with pytest.raises(SentBeforeError, match="already submitted"):
        await forms.once(b"form", work)
    assert work.calls == 1


async def test_as_many_are_kept_as_the_limit_says(
    forms: SentForms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FORM_ANSWERS_KEPT", 2)

    async def work() -> Answer:
        return Answer(see_other("/ui"), "")

    first = await forms.once(b"1", work)
    await forms.once(b"2", work)
    assert await forms.once(b"1", work) is first
    await forms.once(b"3", work)
    assert await forms.once(b"1", work) is not first


TEMPLATES = sorted(Path(__file__).parents[3].joinpath("templates").rglob("*.html"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_every_form_that_changes_something_has_an_id(template: Path) -> None:
    if template.name in ("log_in.html", "layout.html", "sql_answer.html"):
        return  # a session begins and ends there; SQL only reads
    text = template.read_text(encoding="utf-8")
    assert text.count("{{ once() }}") == text.count('method="post"') + text.count('"post" if')
