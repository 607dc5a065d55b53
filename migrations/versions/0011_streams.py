"""Topics that are streams of the Durable Streams protocol."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "streams",
        sa.Column("topic_id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("topic_id", name=op.f("pk_streams")),
        sqlite_strict=True,
    )
