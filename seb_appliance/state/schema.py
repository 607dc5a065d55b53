"""The tables of state.sqlite, as the newest migration leaves them.

A test holds this file and migrations/ together: a new file is made from here and stamped with
`NEWEST_REVISION`, an older file is brought here by Alembic, and the two must be alike.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    insert,
)

from seb_appliance.formats.entry import ORIGIN
from seb_appliance.state.digest import CHECKSUM_MODULUS, row_checksum

NEWEST_REVISION: Final = "0012"

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# `parent_id` and `fork_offset` of a fork: below that offset it reads its parent's records.
# `deleted`: only its forks read its records. `held_offset`: rows wholly below are in force no more,
# since neither it nor a fork of it needs them (broker/lineage.py). `owner`: who made it, by the
# name in the audit; "" if that is not known.
topics: Final = Table(
    "topics",
    metadata,
    Column("topic_id", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False, unique=True),
    Column("created_us", Integer, nullable=False),
    Column("settings", Text, nullable=False),  # JSON of what was set; what was not is left out
    Column("log_start_offset", Integer, nullable=False),
    Column("parent_id", Integer),
    Column("fork_offset", Integer, nullable=False),
    Column("deleted", Integer, nullable=False),
    Column("held_offset", Integer, nullable=False),
    Column("owner", Text, nullable=False),
    sqlite_strict=True,
)
Index("ix_topics_parent_id", topics.c.parent_id)

# Topics that are streams of the Durable Streams protocol. `state`: JSON of `StreamState`.
streams: Final = Table(
    "streams",
    metadata,
    Column("topic_id", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    sqlite_strict=True,
)

# One row per journal entry that is not tidied, or whose sections are in no page of the index yet,
# as a range read of it would tell again. `contents` is the msgpack table of contents; `sections_at`
# is where in the object its first section begins.
journal_entries: Final = Table(
    "journal_entries",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("epoch", Integer, nullable=False),
    Column("writer_id", LargeBinary, nullable=False),
    Column("created_us", Integer, nullable=False),
    Column("length", Integer, nullable=False),
    Column("sections_at", Integer, nullable=False),
    Column("contents", LargeBinary, nullable=False),
    sqlite_strict=True,
)

# Who wrote the entries from `first_seq` on, up to the next writer's first.
writers: Final = Table(
    "writers",
    metadata,
    Column("first_seq", Integer, primary_key=True, autoincrement=False),
    Column("epoch", Integer, nullable=False),
    Column("writer_id", LargeBinary, nullable=False),
    sqlite_strict=True,
)

# Where the sections of one topic lie that were stored in one stretch of the journal: the offsets
# from `base_offset` up to `end_offset`. `newest_us` is the largest timestamp, and `total_bytes` are
# all bytes, from the log's first section up to this page's last; `sections` is what
# broker/index_rows.py packs.
index_pages: Final = Table(
    "index_pages",
    metadata,
    Column("topic_id", Integer, primary_key=True, autoincrement=False),
    Column("base_offset", Integer, primary_key=True, autoincrement=False),
    Column("end_offset", Integer, nullable=False),
    Column("newest_us", Integer, nullable=False),
    Column("total_bytes", Integer, nullable=False),
    Column("sections", LargeBinary, nullable=False),
    Index(None, "topic_id", "newest_us", "base_offset"),
    sqlite_strict=True,
)

# Segments and packed objects that are not condemned.
stored_objects: Final = Table(
    "stored_objects",
    metadata,
    Column("object_id", Integer, primary_key=True, autoincrement=False),
    Column("key", Text, nullable=False, unique=True),
    Column("length", Integer, nullable=False),
    sqlite_strict=True,
)

# Their sections in force. `at` counts from the object's beginning.
stored_sections: Final = Table(
    "stored_sections",
    metadata,
    Column("topic_id", Integer, primary_key=True, autoincrement=False),
    Column("base_offset", Integer, primary_key=True, autoincrement=False),
    Column("last_offset", Integer, nullable=False),
    Column("record_count", Integer, nullable=False),
    Column("object_id", Integer, nullable=False),
    Column("at", Integer, nullable=False),
    Column("length", Integer, nullable=False),
    Column("crc", Integer, nullable=False),
    Column("created_us", Integer, nullable=False),
    Column("largest_timestamp_us", Integer, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

# What compaction went over: in these offsets no record key is there twice.
compacted_runs: Final = Table(
    "compacted_runs",
    metadata,
    Column("topic_id", Integer, primary_key=True, autoincrement=False),
    Column("base_offset", Integer, primary_key=True, autoincrement=False),
    Column("last_offset", Integer, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

# Objects that were condemned, and when; they go once the grace time is over.
garbage: Final = Table(
    "garbage",
    metadata,
    Column("key", Text, primary_key=True),
    Column("since_us", Integer, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

# Entries up to `tidied_seq` hold nothing in force.
tidy_state: Final = Table(
    "tidy_state",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("tidied_seq", Integer, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
    sqlite_strict=True,
)

# `previous_sha256` is the secret before the last rotation, which works until `overlap_until_us`.
api_keys: Final = Table(
    "api_keys",
    metadata,
    Column("api_key_id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("secret_sha256", LargeBinary, nullable=False),
    Column("grants", Text, nullable=False),  # JSON
    Column("created_us", Integer, nullable=False),
    Column("expires_us", Integer),
    Column("description", Text, nullable=False),
    Column("disabled", Integer, nullable=False),  # 0 or 1
    Column("quotas", Text, nullable=False),  # JSON of those that there are
    Column("previous_sha256", LargeBinary),
    Column("overlap_until_us", Integer),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

# Users of the admin page.
users: Final = Table(
    "users",
    metadata,
    Column("name", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("password_hash", Text, nullable=False),
    Column("set_us", Integer, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

# Who made which group, if it is known; without those that are gone.
group_owners: Final = Table(
    "group_owners",
    metadata,
    Column("group_name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

# The next offset that a group reads of a topic.
group_offsets: Final = Table(
    "group_offsets",
    metadata,
    Column("group_name", Text, primary_key=True),
    Column("topic_id", Integer, primary_key=True, autoincrement=False),
    Column("next_offset", Integer, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("committed_us", Integer, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

# `generation` is the seq of the entry that granted the lease; how much of its time is left is known
# in memory only.
leases: Final = Table(
    "leases",
    metadata,
    Column("group_name", Text, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("holder", Text, nullable=False),
    Column("ttl_ms", Integer, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

# What requests with an Idempotency-Key did, in the order of their `place`. `result` is the msgpack
# of what the entry holds, `owner` and `weight` follow from it (broker/remembered.py).
requests: Final = Table(
    "requests",
    metadata,
    Column("scope", Text, primary_key=True),  # in hex
    Column("place", Integer, nullable=False, unique=True),
    Column("created_us", Integer, nullable=False),
    Column("result", LargeBinary, nullable=False),
    Column("owner", Text, nullable=False),
    Column("weight", Integer, nullable=False),
    Index(None, "owner", "place", "weight"),
    sqlite_strict=True,
)

# Idempotent producers on one topic. `place` orders them by their last request; `recent` is the
# msgpack of their last requests.
producers: Final = Table(
    "producers",
    metadata,
    Column("topic_id", Integer, primary_key=True, autoincrement=False),
    Column("producer_id", Text, primary_key=True),
    Column("place", Integer, nullable=False, unique=True),
    Column("epoch", Integer, nullable=False),
    Column("recent", LargeBinary, nullable=False),
    Column("used_us", Integer, nullable=False),
    Index(None, "topic_id", "place"),
    sqlite_strict=True,
)

# Who did what, numbered from 1 on; not all are kept (audit.py). `before` and `after` are JSON.
audit: Final = Table(
    "audit",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at_us", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject_kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("before", Text),
    Column("after", Text),
    Column("user_agent", Text, nullable=False),
    Index(None, "actor", "action", "number"),
    sqlite_strict=True,
)

# The position: the last entry that is projected into this file. `bucket_id` is known with the first
# entry; the sections of entries up to `paged_seq` are in pages of the index, the `waiting_sections`
# of later ones are not yet; `requests_place` is that of the newest request ever; `checksum` is
# explained in digest.py.
journal_state: Final = Table(
    "journal_state",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("bucket_id", LargeBinary),
    Column("applied_seq", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("writer_id", LargeBinary, nullable=False),
    Column("entry_id", LargeBinary, nullable=False),
    Column("header_crc", Integer, nullable=False),
    Column("created_us", Integer, nullable=False),
    Column("next_topic_id", Integer, nullable=False),
    Column("paged_seq", Integer, nullable=False),
    Column("waiting_sections", Integer, nullable=False),
    Column("requests_place", Integer, nullable=False),
    Column("checksum", Integer, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
    sqlite_strict=True,
)

# Alembic's own table, made here too so that a new file needs no Alembic (11 MB of memory).
_alembic: Final = MetaData()
alembic_version: Final = Table(
    "alembic_version",
    _alembic,
    Column("version_num", String(32), primary_key=True),
)
alembic_version.primary_key.name = "alembic_version_pkc"


_NOTHING_TIDIED: Final = {"id": 1, "tidied_seq": ORIGIN.seq}


def create(connection: Connection) -> None:
    """Make an empty state at ORIGIN, in the caller's transaction."""
    metadata.create_all(connection)
    _alembic.create_all(connection)
    connection.execute(insert(alembic_version).values(version_num=NEWEST_REVISION))
    row: dict[str, int | bytes | None] = {
        "id": 1,
        "bucket_id": None,
        "applied_seq": ORIGIN.seq,
        "epoch": ORIGIN.epoch,
        "writer_id": ORIGIN.writer_id,
        "entry_id": ORIGIN.entry_id,
        "header_crc": ORIGIN.header_crc,
        "created_us": ORIGIN.created_us,
        "next_topic_id": 1,
        "paged_seq": ORIGIN.seq,
        "waiting_sections": 0,
        "requests_place": 0,
    }
    checksum = row_checksum("journal_state", row.values())
    checksum += row_checksum("alembic_version", [NEWEST_REVISION])
    checksum += row_checksum("tidy_state", _NOTHING_TIDIED.values())
    connection.execute(insert(tidy_state), _NOTHING_TIDIED)
    row["checksum"] = checksum % CHECKSUM_MODULUS
    connection.execute(insert(journal_state), row)
