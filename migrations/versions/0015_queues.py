"""Work queues: their settings, and what became of records."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def _key() -> list[sa.Column[object]]:
    return [
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("topic_id", sa.Integer, nullable=False),
    ]


def _numbers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.Integer, nullable=False) for name in names]


def upgrade() -> None:
    op.create_table(
        "queues",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("set_us", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_queues")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "queue_topics",
        *_key(),
        *_numbers("acked", "rejected", "lost"),
        sa.PrimaryKeyConstraint("queue", "topic_id", name=op.f("pk_queue_topics")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_queue_topics_topic_id"), "queue_topics", ["topic_id"])
    op.create_table(
        "queue_ranges",
        *_key(),
        *_numbers("first_offset", "end_offset"),
        sa.PrimaryKeyConstraint("queue", "topic_id", "first_offset", name=op.f("pk_queue_ranges")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "queue_failures",
        *_key(),
        *_numbers("offset", "attempts", "due_us", "first_us"),
        sa.PrimaryKeyConstraint("queue", "topic_id", "offset", name=op.f("pk_queue_failures")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
