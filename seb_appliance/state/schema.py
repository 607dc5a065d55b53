"""The tables of state.sqlite as the newest migration leaves them; connections that write.

A new file is made from this text, so that it needs neither SQLAlchemy nor Alembic. An older file is
migrated by Alembic. A test compares the two: both must give the same schema.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from seb_appliance.errors import ConfigurationError
from seb_appliance.state.tables import CHECKSUM_MODULUS, JournalState, row_checksum

NEWEST_REVISION: Final = "0016"

_SCHEMA: Final = """
-- A fork has `parent_id` and `fork_offset`: below that offset it reads the records of its parent.
-- `deleted`: only its forks read its records. `held_offset`: neither the topic nor a fork of it
-- needs rows wholly below this offset (broker/topics/topic.py). `owner`: who created it, by the
-- name in the audit; "" if unknown. `settings`: JSON of the settings that were set.
CREATE TABLE topics (
    topic_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    settings TEXT NOT NULL,
    log_start_offset INTEGER NOT NULL,
    parent_id INTEGER,
    fork_offset INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    held_offset INTEGER NOT NULL,
    owner TEXT NOT NULL,
    CONSTRAINT pk_topics PRIMARY KEY (topic_id),
    CONSTRAINT uq_topics_name UNIQUE (name)
) STRICT;
CREATE INDEX ix_topics_parent_id ON topics (parent_id);

-- Topics that are streams of the Durable Streams protocol. `state`: JSON of `StreamState`.
CREATE TABLE streams (
    topic_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    CONSTRAINT pk_streams PRIMARY KEY (topic_id)
) STRICT;

-- Journal entries that are not tidied, or whose sections are in no page of the index yet.
-- `contents`: the msgpack table of contents. `sections_at`: where in the object its first section
-- begins.
CREATE TABLE journal_entries (
    seq INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    writer_id BLOB NOT NULL,
    created_us INTEGER NOT NULL,
    length INTEGER NOT NULL,
    sections_at INTEGER NOT NULL,
    contents BLOB NOT NULL,
    CONSTRAINT pk_journal_entries PRIMARY KEY (seq)
) STRICT;

-- Who wrote the entries from `first_seq` on, up to the first entry of the next writer.
CREATE TABLE writers (
    first_seq INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    writer_id BLOB NOT NULL,
    CONSTRAINT pk_writers PRIMARY KEY (first_seq)
) STRICT;

-- Where the sections of one topic lie that were stored in one stretch of the journal: the offsets
-- from `base_offset` up to `end_offset`. `newest_us` is the largest timestamp, and `total_bytes`
-- counts all bytes, from the first section of the log up to the last of this page. `sections` is
-- packed by broker/topics/topic.py.
CREATE TABLE index_pages (
    topic_id INTEGER NOT NULL,
    base_offset INTEGER NOT NULL,
    end_offset INTEGER NOT NULL,
    newest_us INTEGER NOT NULL,
    total_bytes INTEGER NOT NULL,
    sections BLOB NOT NULL,
    CONSTRAINT pk_index_pages PRIMARY KEY (topic_id, base_offset)
) STRICT;
CREATE INDEX ix_index_pages_topic_id_newest_us_base_offset
    ON index_pages (topic_id, newest_us, base_offset);

-- Segments and packed objects that are not condemned.
CREATE TABLE stored_objects (
    object_id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    length INTEGER NOT NULL,
    CONSTRAINT pk_stored_objects PRIMARY KEY (object_id),
    CONSTRAINT uq_stored_objects_key UNIQUE ("key")
) STRICT;

-- Their sections that readers use. `at` counts from the beginning of the object.
CREATE TABLE stored_sections (
    topic_id INTEGER NOT NULL,
    base_offset INTEGER NOT NULL,
    last_offset INTEGER NOT NULL,
    record_count INTEGER NOT NULL,
    object_id INTEGER NOT NULL,
    at INTEGER NOT NULL,
    length INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    largest_timestamp_us INTEGER NOT NULL,
    CONSTRAINT pk_stored_sections PRIMARY KEY (topic_id, base_offset)
) WITHOUT ROWID, STRICT;

-- Ranges of offsets that were compacted, by which journal entry (0: not known any more): no
-- record key occurs twice in one of them.
CREATE TABLE compacted_runs (
    topic_id INTEGER NOT NULL,
    base_offset INTEGER NOT NULL,
    last_offset INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    CONSTRAINT pk_compacted_runs PRIMARY KEY (topic_id, base_offset)
) WITHOUT ROWID, STRICT;

-- Condemned objects, and when they were condemned. They are deleted after the grace time.
CREATE TABLE garbage (
    "key" TEXT NOT NULL,
    since_us INTEGER NOT NULL,
    CONSTRAINT pk_garbage PRIMARY KEY ("key")
) WITHOUT ROWID, STRICT;

-- No reader needs the objects of entries up to `tidied_seq`.
CREATE TABLE tidy_state (
    id INTEGER NOT NULL,
    tidied_seq INTEGER NOT NULL,
    CONSTRAINT pk_tidy_state PRIMARY KEY (id),
    CONSTRAINT ck_tidy_state_one_row CHECK (id = 1)
) STRICT;

-- `previous_sha256` is the secret before the last rotation. It works until `overlap_until_us`.
-- `grants` and `quotas` are JSON; `disabled` is 0 or 1.
CREATE TABLE api_keys (
    api_key_id TEXT NOT NULL,
    name TEXT NOT NULL,
    secret_sha256 BLOB NOT NULL,
    grants TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    expires_us INTEGER,
    description TEXT NOT NULL,
    disabled INTEGER NOT NULL,
    quotas TEXT NOT NULL,
    previous_sha256 BLOB,
    overlap_until_us INTEGER,
    CONSTRAINT pk_api_keys PRIMARY KEY (api_key_id)
) WITHOUT ROWID, STRICT;

-- Users of the admin page.
CREATE TABLE users (
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    password_hash TEXT NOT NULL,
    set_us INTEGER NOT NULL,
    CONSTRAINT pk_users PRIMARY KEY (name)
) WITHOUT ROWID, STRICT;

-- What protocols keep in the journal: JSON by kind and name.
CREATE TABLE documents (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    document TEXT NOT NULL,
    set_us INTEGER NOT NULL,
    CONSTRAINT pk_documents PRIMARY KEY (kind, name)
) WITHOUT ROWID, STRICT;

-- Lake tables; `head` is the msgpack of broker/lake/table.py's TableHead.
CREATE TABLE lake_tables (
    table_id TEXT NOT NULL,
    head BLOB NOT NULL,
    CONSTRAINT pk_lake_tables PRIMARY KEY (table_id)
) STRICT;

-- Their data files, as long as a kept snapshot has them: `file` is the msgpack of a LakeFile.
-- `listed`: the commit that wrote the file's manifest. `removed`: the commit that removed it, or 0.
CREATE TABLE lake_files (
    table_id TEXT NOT NULL,
    name TEXT NOT NULL,
    listed INTEGER NOT NULL,
    removed INTEGER NOT NULL,
    file BLOB NOT NULL,
    CONSTRAINT pk_lake_files PRIMARY KEY (table_id, name)
) STRICT;
CREATE INDEX ix_lake_files_table_id_listed ON lake_files (table_id, listed);
CREATE INDEX ix_lake_files_table_id_removed ON lake_files (table_id, removed);

-- Work queues (broker/queues/progress.py). `settings`: JSON. `set_us`: when it was made or changed.
CREATE TABLE queues (
    name TEXT NOT NULL,
    settings TEXT NOT NULL,
    owner TEXT NOT NULL,
    set_us INTEGER NOT NULL,
    CONSTRAINT pk_queues PRIMARY KEY (name)
) WITHOUT ROWID, STRICT;

-- How many records of a topic were acknowledged, rejected and lost.
CREATE TABLE queue_topics (
    queue TEXT NOT NULL,
    topic_id INTEGER NOT NULL,
    acked INTEGER NOT NULL,
    rejected INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    CONSTRAINT pk_queue_topics PRIMARY KEY (queue, topic_id)
) WITHOUT ROWID, STRICT;
CREATE INDEX ix_queue_topics_topic_id ON queue_topics (topic_id);

-- Offsets that are settled, up to `end_offset` (exclusive). Ranges neither overlap nor touch.
CREATE TABLE queue_ranges (
    queue TEXT NOT NULL,
    topic_id INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    end_offset INTEGER NOT NULL,
    CONSTRAINT pk_queue_ranges PRIMARY KEY (queue, topic_id, first_offset)
) WITHOUT ROWID, STRICT;

-- Records that failed and are not settled; see FailedDelivery.
CREATE TABLE queue_failures (
    queue TEXT NOT NULL,
    topic_id INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    due_us INTEGER NOT NULL,
    first_us INTEGER NOT NULL,
    CONSTRAINT pk_queue_failures PRIMARY KEY (queue, topic_id, "offset")
) WITHOUT ROWID, STRICT;

-- Ranges of records that queues hand out when they are due (rows/delays.py). What has passed, or is
-- of a deleted topic, stays until `delays_passed` removes it.
CREATE TABLE delays (
    topic_id INTEGER NOT NULL,
    due_us INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    end_offset INTEGER NOT NULL,
    CONSTRAINT pk_delays PRIMARY KEY (topic_id, due_us, first_offset)
) WITHOUT ROWID, STRICT;
CREATE INDEX ix_delays_topic_id_first_offset ON delays (topic_id, first_offset, end_offset);

-- Who created which group, if it is known. Deleted groups have no row.
CREATE TABLE group_owners (
    group_name TEXT NOT NULL,
    owner TEXT NOT NULL,
    CONSTRAINT pk_group_owners PRIMARY KEY (group_name)
) WITHOUT ROWID, STRICT;

-- The next offset of a topic that a group reads.
CREATE TABLE group_offsets (
    group_name TEXT NOT NULL,
    topic_id INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    committed_us INTEGER NOT NULL,
    CONSTRAINT pk_group_offsets PRIMARY KEY (group_name, topic_id)
) WITHOUT ROWID, STRICT;

-- `generation` is the seq of the entry that granted the lease; memory knows the remaining time.
CREATE TABLE leases (
    group_name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    holder TEXT NOT NULL,
    ttl_ms INTEGER NOT NULL,
    CONSTRAINT pk_leases PRIMARY KEY (group_name)
) WITHOUT ROWID, STRICT;

-- Results of requests with an Idempotency-Key, ordered by `place`. `scope` is in hex, `result` is
-- msgpack; `owner` and `weight` follow from it (broker/append/retry_results.py).
CREATE TABLE requests (
    scope TEXT NOT NULL,
    place INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    result BLOB NOT NULL,
    owner TEXT NOT NULL,
    weight INTEGER NOT NULL,
    CONSTRAINT pk_requests PRIMARY KEY (scope),
    CONSTRAINT uq_requests_place UNIQUE (place)
) STRICT;
CREATE INDEX ix_requests_owner_place_weight ON requests (owner, place, weight);

-- Idempotent producers on one topic. `place` orders them by their last request; `recent` is the
-- msgpack of their last requests.
CREATE TABLE producers (
    topic_id INTEGER NOT NULL,
    producer_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    recent BLOB NOT NULL,
    used_us INTEGER NOT NULL,
    CONSTRAINT pk_producers PRIMARY KEY (topic_id, producer_id),
    CONSTRAINT uq_producers_place UNIQUE (place)
) STRICT;
CREATE INDEX ix_producers_topic_id_place ON producers (topic_id, place);

-- The newest actions, numbered from 1 on (bounded.py). `before` and `after` are JSON.
CREATE TABLE audit (
    number INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    actor TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    subject_kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    "before" TEXT,
    "after" TEXT,
    user_agent TEXT NOT NULL,
    CONSTRAINT pk_audit PRIMARY KEY (number)
) STRICT;
CREATE INDEX ix_audit_actor_action_number ON audit (actor, action, number);

-- The position: the last entry that is projected into this file (`JournalState` in tables.py).
CREATE TABLE journal_state (
    id INTEGER NOT NULL,
    bucket_id BLOB,
    applied_seq INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    writer_id BLOB NOT NULL,
    entry_id BLOB NOT NULL,
    header_crc INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    next_topic_id INTEGER NOT NULL,
    paged_seq INTEGER NOT NULL,
    waiting_sections INTEGER NOT NULL,
    requests_place INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    CONSTRAINT pk_journal_state PRIMARY KEY (id),
    CONSTRAINT ck_journal_state_one_row CHECK (id = 1)
) STRICT;

-- Alembic's own table.
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
"""

# NORMAL: a commit does not wait for the disk. A power cut may lose the last transactions, never the
# file's consistency, and the lost ones are replayed from the journal. trusted_schema: a file from
# elsewhere must not make us run anything.
_PRAGMAS: Final = (
    "PRAGMA synchronous = NORMAL",
    "PRAGMA busy_timeout = 5000",
    "PRAGMA trusted_schema = OFF",
)


def connect(path: Path) -> sqlite3.Connection:
    """A connection that writes. Threads may share it, one at a time."""
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        set_up(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def set_up(connection: sqlite3.Connection) -> None:
    """The settings of every connection that writes."""
    # Otherwise Python's sqlite3 begins transactions by rules of its own, and not before DDL.
    connection.isolation_level = None
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise ConfigurationError(
            f"SQLite cannot keep a write-ahead log in the data directory (it offers {mode!r}):"
            " use a directory on a local disk"
        )
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def make(path: Path) -> None:
    """Make the state file `path` (absent or empty before) at ORIGIN and the newest revision."""
    with closing(connect(path)) as connection:
        create(connection)


def create(connection: sqlite3.Connection) -> None:
    """Make an empty state at ORIGIN."""
    connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
    first_rows: dict[str, tuple[object, ...]] = {
        "alembic_version": (NEWEST_REVISION,),
        "tidy_state": (1, 0),
        "journal_state": JournalState().row,
    }
    checksum = sum(row_checksum(table, row) for table, row in first_rows.items())
    first_rows["journal_state"] += (checksum % CHECKSUM_MODULUS,)
    for table, row in first_rows.items():
        marks = ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608 - our names
