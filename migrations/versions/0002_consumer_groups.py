"""Consumer groups: committed offsets and leases."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "group_offsets",
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("topic_id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("next_offset", sa.Integer, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("committed_us", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("group_name", "topic_id", name=op.f("pk_group_offsets")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "leases",
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("ttl_ms", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("group_name", name=op.f("pk_leases")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
