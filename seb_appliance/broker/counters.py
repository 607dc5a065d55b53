"""What the broker counts. Plain integers, read at any time; nothing is written for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from seb_appliance.broker.latencies import Latencies
from seb_appliance.formats.entry import Entry


@dataclass(slots=True)
class Counters:
    entries: int = 0
    entry_bytes: int = 0
    records: int = 0
    put_seconds: float = 0.0
    puts: Latencies = field(default_factory=Latencies)  # the same, each for itself
    plain_bytes: int = 0  # of batches that were compressed, before
    packed_bytes: int = 0  # … and after
    reads: int = 0
    read_records: int = 0
    deadlines_passed: int = 0
    fetched_ahead: int = 0  # sections
    index_lookups: int = 0  # pages of the index read from SQLite
    live_encoded: int = 0  # records, each once for all who follow at the log end

    def note_compressed(self, plain_bytes: int, packed_bytes: int) -> None:
        self.plain_bytes += plain_bytes
        self.packed_bytes += packed_bytes

    def note_entry(self, entry: Entry, put_s: float) -> None:
        self.entries += 1
        self.entry_bytes += entry.header.length
        self.records += sum(section.record_count for section in entry.contents.sections)
        self.put_seconds += put_s
        self.puts.add(put_s)
