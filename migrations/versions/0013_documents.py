"""What protocols keep in the journal."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "documents",
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("set_us", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name=op.f("pk_documents")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
