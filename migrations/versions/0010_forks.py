"""Topics that share the records of others."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
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
        sa.Column("parent_id", sa.Integer),
        sa.Column("fork_offset", sa.Integer, nullable=False),
        sa.Column("deleted", sa.Integer, nullable=False),
        sa.Column("held_offset", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("topic_id", name=op.f("pk_topics")),
        sa.UniqueConstraint("name", name=op.f("uq_topics_name")),
        sqlite_strict=True,
    )
    op.execute(
        "INSERT INTO topics SELECT topic_id, name, created_us, settings, log_start_offset, NULL, 0,"
        " 0, log_start_offset FROM old_topics"
    )
    op.execute("DROP TABLE old_topics")
    op.create_index("ix_topics_parent_id", "topics", ["parent_id"])
