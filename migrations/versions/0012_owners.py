"""Rows of tables that all API keys share know whose they are."""

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _topics()
    _requests()
    op.create_index("ix_producers_topic_id_place", "producers", ["topic_id", "place"])
    op.create_index("ix_audit_actor_action_number", "audit", ["actor", "action", "number"])
    op.create_table(
        "group_owners",
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("group_name", name=op.f("pk_group_owners")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )


def _topics() -> None:
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
        sa.Column("owner", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("topic_id", name=op.f("pk_topics")),
        sa.UniqueConstraint("name", name=op.f("uq_topics_name")),
        sqlite_strict=True,
    )
    # Who made a topic long ago is not in the audit any more.
    op.execute(
        "INSERT INTO topics SELECT topic_id, name, created_us, settings, log_start_offset,"
        " parent_id, fork_offset, deleted, held_offset, coalesce((SELECT actor FROM audit"
        " WHERE action IN ('topic_created', 'topic_forked') AND subject = name"
        " ORDER BY number DESC LIMIT 1), '') FROM old_topics"
    )
    op.execute("DROP TABLE old_topics")
    op.create_index("ix_topics_parent_id", "topics", ["parent_id"])


def _requests() -> None:
    op.execute("CREATE TEMP TABLE old_requests AS SELECT * FROM requests")
    op.drop_table("requests")
    op.create_table(
        "requests",
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("created_us", sa.Integer, nullable=False),
        sa.Column("result", sa.LargeBinary, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("weight", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("scope", name=op.f("pk_requests")),
        sa.UniqueConstraint("place", name=op.f("uq_requests_place")),
        sqlite_strict=True,
    )
    op.create_index("ix_requests_owner_place_weight", "requests", ["owner", "place", "weight"])
    connection = op.get_bind()
    weights = [
        {"of": scope, "weight": max(1, len(msgspec.msgpack.decode(result)[2]))}
        for scope, result in connection.execute(sa.text("SELECT scope, result FROM old_requests"))
    ]
    # The first 6 bytes of a scope, which is in hex, are its owner's if the last of them is a5.
    op.execute(
        "INSERT INTO requests SELECT scope, place, created_us, result, CASE substr(scope, 11, 2)"
        " WHEN 'a5' THEN substr(scope, 1, 12) ELSE 'older' END, 1 FROM old_requests"
    )
    if weights:
        connection.execute(sa.text("UPDATE requests SET weight=:weight WHERE scope=:of"), weights)
    op.execute("DROP TABLE old_requests")
