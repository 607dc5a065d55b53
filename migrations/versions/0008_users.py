"""Users of the admin page; the audit tells what an actor's client calls itself."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("password_hash", sa.Text, nullable=False),
        sa.Column("set_us", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_users")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    # SQLite adds no NOT NULL column without a default for ever after: the table is made anew.
    op.execute("CREATE TEMP TABLE old_audit AS SELECT * FROM audit")
    op.drop_table("audit")
    op.create_table(
        "audit",
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("at_us", sa.Integer, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject_kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("before", sa.Text),
        sa.Column("after", sa.Text),
        sa.Column("user_agent", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit")),
        sqlite_strict=True,
    )
    op.execute("INSERT INTO audit SELECT *, '' FROM old_audit")
    op.execute("DROP TABLE old_audit")
