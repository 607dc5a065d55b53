"""Lake tables and their data files, and which entry compacted a range: their rows follow it."""

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
    op.rename_table("compacted_runs", "runs_before")
    op.create_table(
        "compacted_runs",
        sa.Column("topic_id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("base_offset", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("last_offset", sa.Integer, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "base_offset", name=op.f("pk_compacted_runs")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.execute("INSERT INTO compacted_runs SELECT *, 0 FROM runs_before")
    op.drop_table("runs_before")
