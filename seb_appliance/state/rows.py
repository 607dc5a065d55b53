"""Journal values as rows of the tables, and back.

A value is encoded the same way by every release that reads it, so that a state rebuilt from the
journal is equal, byte for byte, to the one that followed it.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec
import sqlalchemy

from seb_appliance.broker.ports import ApiKeyRow, EntryRef, EntryRow, TopicRow, UserRow
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.contents import Section, encode_contents
from seb_appliance.formats.durable_streams import StreamState
from seb_appliance.formats.entry import Entry, EntryHeader, Position
from seb_appliance.formats.operations import (
    ApiKeyChanged,
    ApiKeyCreated,
    ApiKeyRotated,
    CommittedOffset,
    LeaseTaken,
    StoredSection,
    StreamSet,
    TopicCreated,
    TopicForked,
    UserSet,
)
from seb_appliance.formats.topic_settings import TopicSettings

Row: TypeAlias = dict[str, Any]
ResultRow: TypeAlias = sqlalchemy.Row[*tuple[Any, ...]]

_encode_json: Final = msgspec.json.Encoder().encode
_decode_settings: Final = msgspec.json.Decoder(TopicSettings).decode
_decode_stream: Final = msgspec.json.Decoder(StreamState).decode
_decode_quotas: Final = msgspec.json.Decoder(Quotas).decode
_decode_grants: Final = msgspec.json.Decoder(tuple[Grant, ...]).decode


def of_entry(entry: Entry) -> Row:
    header = entry.header
    return {
        "seq": header.seq,
        "epoch": header.epoch,
        "writer_id": header.writer_id,
        "created_us": header.created_us,
        "length": header.length,
        "sections_at": header.sections_at,
        "contents": encode_contents(entry.contents),
    }


def of_writer(header: EntryHeader) -> Row:
    """`header`: of the writer's first entry."""
    return {
        "first_seq": header.seq,
        "epoch": header.epoch,
        "writer_id": header.writer_id,
    }


def of_topic(created: TopicCreated) -> Row:
    return {
        "topic_id": created.topic_id,
        "name": created.name,
        "created_us": created.created_us,
        "settings": of_settings(created.settings),
        "log_start_offset": 0,
        "parent_id": None,
        "fork_offset": 0,
        "deleted": 0,
        "held_offset": 0,
        "owner": "",
    }


def of_fork(forked: TopicForked) -> Row:
    return {
        "topic_id": forked.topic_id,
        "name": forked.name,
        "created_us": forked.created_us,
        "settings": of_settings(forked.settings),
        "log_start_offset": forked.log_start_offset,
        "parent_id": forked.parent_id,
        "fork_offset": forked.fork_offset,
        "deleted": 0,
        "held_offset": forked.log_start_offset,
        "owner": "",
    }


def of_stream(stream: StreamSet) -> Row:
    """Of the Durable Streams protocol."""
    return {"topic_id": stream.topic_id, "state": _encode_json(stream.stream).decode()}


def of_stored_section(object_id: int, section: StoredSection) -> Row:
    return {
        "topic_id": section.topic_id,
        "base_offset": section.base_offset,
        "last_offset": section.last_offset,
        "record_count": section.record_count,
        "object_id": object_id,
        "at": section.at,
        "length": section.length,
        "crc": section.crc,
        "created_us": section.created_us,
        "largest_timestamp_us": section.largest_timestamp_us,
    }


def of_settings(settings: TopicSettings | Quotas) -> str:
    """JSON of what was set, so that a setting of a later release changes no older row."""
    fields = msgspec.structs.asdict(settings)
    return _encode_json({name: x for name, x in fields.items() if x is not None}).decode()


def of_api_key(created: ApiKeyCreated) -> Row:
    return {
        "api_key_id": created.api_key_id,
        "name": created.name,
        "secret_sha256": created.secret_sha256,
        "grants": _encode_json(created.grants).decode(),
        "created_us": created.created_us,
        "expires_us": created.expires_us,
        "description": created.description,
        "disabled": int(created.disabled),
        "quotas": of_settings(created.quotas),
        "previous_sha256": None,
        "overlap_until_us": None,
    }


def of_api_key_changed(changed: ApiKeyChanged) -> Row:
    return {
        "name": changed.name,
        "grants": _encode_json(changed.grants).decode(),
        "expires_us": changed.expires_us,
        "description": changed.description,
        "disabled": int(changed.disabled),
        "quotas": of_settings(changed.quotas),
    }


def of_api_key_rotated(rotated: ApiKeyRotated) -> Row:
    return {
        "of_api_key_id": rotated.api_key_id,
        "new_sha256": rotated.secret_sha256,
        "until_us": rotated.overlap_until_us,
    }


def of_user(user: UserSet) -> Row:
    return {
        "name": user.name,
        "role": user.role,
        "password_hash": user.password_hash,
        "set_us": user.set_us,
    }


def of_group_offset(group: str, item: CommittedOffset, committed_us: int) -> Row:
    return {
        "group_name": group,
        "topic_id": item.topic_id,
        "next_offset": item.offset,
        "metadata": item.metadata,
        "committed_us": committed_us,
    }


def of_lease(taken: LeaseTaken, generation: int) -> Row:
    return {
        "group_name": taken.group,
        "generation": generation,
        "holder": taken.holder,
        "ttl_ms": taken.ttl_ms,
    }


def of_position(position: Position) -> Row:
    return {
        "applied_seq": position.seq,
        "epoch": position.epoch,
        "writer_id": position.writer_id,
        "entry_id": position.entry_id,
        "header_crc": position.header_crc,
        "created_us": position.created_us,
    }


def to_position(row: ResultRow) -> Position:
    return Position(
        seq=row.applied_seq,
        epoch=row.epoch,
        writer_id=row.writer_id,
        entry_id=row.entry_id,
        header_crc=row.header_crc,
        created_us=row.created_us,
    )


def to_topic(row: ResultRow) -> TopicRow:
    settings = _decode_settings(row.settings)
    return TopicRow(
        row.topic_id,
        row.name,
        row.created_us,
        settings,
        row.log_start_offset,
        row.parent_id,
        row.fork_offset,
        bool(row.deleted),
        row.held_offset,
        row.owner,
    )


def to_stream(row: ResultRow) -> tuple[int, StreamState]:
    """The topic's id, and its state as a stream."""
    return row.topic_id, _decode_stream(row.state)


def to_stored_section(row: ResultRow) -> tuple[int, StoredSection]:
    """The id of the object that holds it, and the section."""
    return row.object_id, StoredSection(
        row.topic_id,
        row.base_offset,
        row.last_offset,
        row.record_count,
        row.at,
        row.length,
        row.crc,
        row.created_us,
        row.largest_timestamp_us,
    )


def to_api_key(row: ResultRow) -> ApiKeyRow:
    return ApiKeyRow(
        row.api_key_id,
        row.name,
        row.secret_sha256,
        _decode_grants(row.grants),
        row.created_us,
        row.expires_us,
        row.description,
        bool(row.disabled),
        _decode_quotas(row.quotas),
        row.previous_sha256,
        row.overlap_until_us,
    )


def to_user(row: ResultRow) -> UserRow:
    return UserRow(row.name, row.role, row.password_hash, row.set_us)


def to_entry(row: ResultRow, sections: list[Section]) -> EntryRow:
    ref = EntryRef(row.seq, row.epoch, row.writer_id)
    return EntryRow(ref, row.created_us, row.sections_at, sections)
