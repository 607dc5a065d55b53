"""Safe retries: results of requests, and producers."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "requests",
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("created_us", sa.Integer, nullable=False),
        sa.Column("result", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("scope", name=op.f("pk_requests")),
        sa.UniqueConstraint("place", name=op.f("uq_requests_place")),
        sqlite_strict=True,
    )
    op.create_table(
        "producers",
        sa.Column("topic_id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("producer_id", sa.Text, nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("recent", sa.LargeBinary, nullable=False),
        sa.Column("used_us", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "producer_id", name=op.f("pk_producers")),
        sa.UniqueConstraint("place", name=op.f("uq_producers_place")),
        sqlite_strict=True,
    )
