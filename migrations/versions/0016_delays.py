"""Delayed records."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "delays",
        *(
            sa.Column(name, sa.Integer, nullable=False)
            for name in ("topic_id", "due_us", "first_offset", "end_offset")
        ),
        sa.PrimaryKeyConstraint("topic_id", "due_us", "first_offset", name=op.f("pk_delays")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index(
        op.f("ix_delays_topic_id_first_offset"),
        "delays",
        ["topic_id", "first_offset", "end_offset"],
    )
