"""Jobs with many files reach the process that writes tables in parts."""

from __future__ import annotations

import msgspec
import pytest

from seb_appliance.broker.lake.jobs import PrintJob
from seb_appliance.errors import StoreUncertainError
from seb_appliance.ops.jobs.job_process import frame
from seb_appliance.ops.jobs.lake.process import (
    ChildTableWriter,
    FilesAhead,
    GatheredFiles,
    TableAnswer,
    TableJob,
)
from tests.support.lake import Story, data_file

FILES = 4_500


class Process:
    """In place of a child: what it is sent, as the child reads it. It dies before `dies_at`."""

    def __init__(self, dies_at: int = -1) -> None:
        self.frames: list[int] = []
        self.jobs: list[object] = []
        self._dies_at = dies_at
        self._files = GatheredFiles()

    async def ask(self, value: object, _: type[TableAnswer]) -> TableAnswer:
        if len(self.frames) == self._dies_at:
            self._files = GatheredFiles()
        body = frame(value)
        self.frames.append(len(body))
        sent = msgspec.msgpack.decode(body[4:], type=FilesAhead | TableJob)
        if isinstance(sent, FilesAhead):
            self._files.add(sent)
            return TableAnswer()
        self.jobs.append(self._files.whole(sent))
        return TableAnswer(failure="enough")


def job_of_many_files() -> PrintJob:
    story = Story()
    story.commit(*(data_file(i, i) for i in range(FILES)))
    table = story.table
    return PrintJob(table.head.copy(), tuple(table.listed()), tuple(table.living()))


async def print_by(process: Process, job: PrintJob) -> None:
    writer = ChildTableWriter(None, "A")  # type: ignore[arg-type]
    writer._process = process  # type: ignore[assignment]
    await writer.print(job)


async def test_no_frame_holds_the_event_loop_for_long():
    process, job = Process(), job_of_many_files()
    with pytest.raises(StoreUncertainError, match="enough"):
        await print_by(process, job)
    assert process.jobs == [job]
    assert max(process.frames) < len(frame(job)) / 6


@pytest.mark.parametrize("dies_at", [2, 5, 10])
async def test_a_child_that_was_replaced_meanwhile_refuses_the_job(dies_at: int):
    process = Process(dies_at)
    with pytest.raises(StoreUncertainError, match="not all files"):
        await print_by(process, job_of_many_files())
    assert process.jobs == []
