"""What a start may take of the processor, with room to spare: other work does not count."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.state.database import StateDatabase
from tests.support.yardstick import at_this_speed
from tests.unit.state.journal import Journal, section, topic_created

ENTRIES = 10_000
SECTIONS = 100
IN_ONE_TRANSACTION = 256
LOADING_BYTES_MAX = 40_000_000  # of a million sections, only those that are in no page yet


@pytest.mark.slow
@pytest.mark.measured
async def test_ten_thousand_entries_are_projected_and_ready_again_in_time(path: Path) -> None:
    journal = Journal()
    journal.write(*(topic_created(1 + i) for i in range(SECTIONS)))
    while len(journal.entries) < ENTRIES:
        offset = len(journal.entries)
        journal.write(sections=[section(1 + i, offset, start=8 * i) for i in range(SECTIONS)])

    database = await StateDatabase.open(path)
    began = time.process_time()
    for first in range(0, ENTRIES, IN_ONE_TRANSACTION):
        await database.apply(journal.entries[first : first + IN_ONE_TRANSACTION])
    projected_s = time.process_time() - began
    await database.close()
    position = journal.position
    del journal

    began = time.process_time()
    database = await StateDatabase.open(path)
    loaded = await database.load()
    ready_s = time.process_time() - began
    tracemalloc.start()
    again = await database.load()
    _, loading_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await database.close()
    assert again == loaded
    assert loaded.position == position
    assert sum(len(entry.sections) for entry in loaded.entries) < limits.INDEX_PAGE_SECTIONS
    assert loading_bytes < LOADING_BYTES_MAX, loading_bytes
    assert projected_s < at_this_speed(8), projected_s
    assert ready_s < at_this_speed(2), ready_s
    print(
        f"projected in {projected_s:.2f} s, ready again in {ready_s:.2f} s"
        f" with {loading_bytes / 1e6:.0f} MB"
    )
