"""What compaction went over, of each topic."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compacted_runs",
        sa.Column("topic_id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("base_offset", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("last_offset", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "base_offset", name=op.f("pk_compacted_runs")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
