"""Whether the bytes of one object are what they should be: every checksum, batch and count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

from seb_appliance.errors import BadBatchError
from seb_appliance.formats import entry, segment
from seb_appliance.formats.contents import Section
from seb_appliance.formats.entry import EntryHeader
from seb_appliance.formats.operations import StoredSection
from seb_appliance.storage import layout
from seb_appliance.storage.layout import Claim
from seb_appliance.storage.objects.merging import batches_of

SectionId = tuple[int, int]  # topic id, base offset


@dataclass(slots=True)
class Verdict:
    """`faults`: what is wrong, in words; none: the object is sound. `bad_sections`: those that
    cannot be read; None: all of them."""

    header: EntryHeader | None = None
    faults: list[str] = field(default_factory=list)
    bad_sections: set[SectionId] | None = field(default_factory=set)

    def condemn(self, fault: str) -> Verdict:
        """Nothing in it can be relied on."""
        self.faults.append(fault)
        self.bad_sections = None
        return self


def check_entry(key: str, body: bytes, bucket_id: bytes) -> Verdict:
    """A journal entry that lies at `key`."""
    verdict = Verdict()
    place = layout.parse_entry(key)
    assert place is not None, key
    claim, seq = place
    try:
        found = entry.decode(body)
    except BadBatchError as error:
        return verdict.condemn(error.detail)
    header = verdict.header = found.header
    if header.seq != seq:
        return verdict.condemn(f"it is entry {header.seq}, not the one that its key says")
    if claim is not None and claim != Claim(header.epoch, header.writer_id):
        return verdict.condemn("it is another writer's than its key says")
    if header.bucket_id != bucket_id:
        return verdict.condemn(f"it is of another bucket ({header.bucket_id.hex()})")
    for section in found.contents.sections:
        data = entry.section_bytes(header, body, section.start, section.length)
        _check_section(verdict, section, data)
    return verdict


def check_segment(key: str, body: bytes, bucket_id: bytes) -> tuple[Verdict, set[StoredSection]]:
    """A segment or packed object that lies at `key`; and the sections that it says it has."""
    verdict = Verdict()
    try:
        index = segment.decode(body)
    except BadBatchError as error:
        return verdict.condemn(error.detail), set()
    if index.bucket_id != bucket_id:
        return verdict.condemn(f"it is of another bucket ({index.bucket_id.hex()})"), set()
    if not layout.is_key_of(key, index.topic_id, index.base, index.last):
        verdict.condemn("its header names other topics or offsets than its key")
        return verdict, set()
    for section in index.sections:
        data = memoryview(body)[section.at : section.at + section.length]
        _check_section(verdict, section, data)
    return verdict, set(index.sections)


def check_adopted(body: bytes, sections: Sequence[StoredSection]) -> Verdict:
    """A file of the Go broker that is these `sections`: one, as long as it is in force."""
    verdict = Verdict()
    for section in sections:
        if (section.at, section.length) != (0, len(body)):
            return verdict.condemn(f"it has {len(body)} bytes, the log says {section.length}")
        _check_section(verdict, section, memoryview(body))
    return verdict


def compare_sections(
    verdict: Verdict, wanted: Sequence[StoredSection], found: set[StoredSection]
) -> str:
    """Why the sections `found` in an object are not those that the log put in force, or ""."""
    missing = [section for section in wanted if section not in found]
    if not missing or verdict.bad_sections is None:
        return ""
    verdict.bad_sections.update((section.topic_id, section.base_offset) for section in missing)
    return f"{len(missing)} of {len(wanted)} sections in force are not in it as the log has them"


def _check_section(verdict: Verdict, section: Section | StoredSection, data: memoryview) -> None:
    fault = _section_fault(section, data)
    if fault:
        assert verdict.bad_sections is not None
        verdict.bad_sections.add((section.topic_id, section.base_offset))
        where = f"offsets {section.base_offset} to {section.last_offset}"
        verdict.faults.append(f"topic {section.topic_id}, {where}: {fault}")


def _section_fault(section: Section | StoredSection, data: memoryview) -> str:
    if crc32c(data) != section.crc:
        return "the CRC of the section does not agree"
    records, largest_us = 0, 0
    try:
        for found, _ in batches_of(bytes(data), section.base_offset, section.last_offset):
            records += found.header.count
            largest_us = max(largest_us, found.header.largest_timestamp_us)
    except BadBatchError as error:
        return error.detail
    if records != section.record_count:
        return f"{records} records are there, the section says {section.record_count}"
    if largest_us != section.largest_timestamp_us:
        return "the largest timestamp does not agree"
    return ""
