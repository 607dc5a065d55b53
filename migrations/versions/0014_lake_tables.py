"""Lake tables and their data files."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lake_tables",
        sa.Column("table_id", sa.Text, nullable=False),
        sa.Column("head", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("table_id", name=op.f("pk_lake_tables")),
        sqlite_strict=True,
    )
    op.create_table(
        "lake_files",
        sa.Column("table_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("listed", sa.Integer, nullable=False),
        sa.Column("removed", sa.Integer, nullable=False),
        sa.Column("file", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("table_id", "name", name=op.f("pk_lake_files")),
        sqlite_strict=True,
    )
    for column in ("listed", "removed"):
        name = f"ix_lake_files_table_id_{column}"
        op.create_index(op.f(name), "lake_files", ["table_id", column])
