"""Segments, packed objects and what is garbage; topics begin at a log start offset."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite adds no NOT NULL column without a default for ever after: the table is made anew.
    op.execute("CREATE TEMP TABLE old_topics AS SELECT * FROM topics")
    op.drop_table("topics")
    op.create_table(
        "topics",
        sa.Column("topic_id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_us", sa.Integer, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("log_start_offset", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("topic_id", name=op.f("pk_topics")),
        sa.UniqueConstraint("name", name=op.f("uq_topics_name")),
        sqlite_strict=True,
    )
    op.execute("INSERT INTO topics SELECT topic_id, name, created_us, settings, 0 FROM old_topics")
    op.execute("DROP TABLE old_topics")
    op.create_table(
        "stored_objects",
        sa.Column("object_id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("length", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("object_id", name=op.f("pk_stored_objects")),
        sa.UniqueConstraint("key", name=op.f("uq_stored_objects_key")),
        sqlite_strict=True,
    )
    op.create_table(
        "stored_sections",
        sa.Column("topic_id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("base_offset", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("last_offset", sa.Integer, nullable=False),
        sa.Column("record_count", sa.Integer, nullable=False),
        sa.Column("object_id", sa.Integer, nullable=False),
        sa.Column("at", sa.Integer, nullable=False),
        sa.Column("length", sa.Integer, nullable=False),
        sa.Column("crc", sa.Integer, nullable=False),
        sa.Column("created_us", sa.Integer, nullable=False),
        sa.Column("largest_timestamp_us", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "base_offset", name=op.f("pk_stored_sections")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "garbage",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("since_us", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_garbage")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tidy_state",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("tidied_seq", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tidy_state")),
        sa.CheckConstraint("id = 1", name=op.f("ck_tidy_state_one_row")),
        sqlite_strict=True,
    )
    op.execute("INSERT INTO tidy_state VALUES (1, 0)")
