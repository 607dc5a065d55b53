"""API keys that are changed, rotated and bounded by quotas; the audit."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite adds no NOT NULL column without a default for ever after: the table is made anew.
    op.execute("CREATE TEMP TABLE old_api_keys AS SELECT * FROM api_keys")
    op.drop_table("api_keys")
    op.create_table(
        "api_keys",
        sa.Column("api_key_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary, nullable=False),
        sa.Column("grants", sa.Text, nullable=False),
        sa.Column("created_us", sa.Integer, nullable=False),
        sa.Column("expires_us", sa.Integer),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("disabled", sa.Integer, nullable=False),
        sa.Column("quotas", sa.Text, nullable=False),
        sa.Column("previous_sha256", sa.LargeBinary),
        sa.Column("overlap_until_us", sa.Integer),
        sa.PrimaryKeyConstraint("api_key_id", name=op.f("pk_api_keys")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO api_keys SELECT api_key_id, name, secret_sha256, grants, created_us,"
        " expires_us, '', 0, '{}', NULL, NULL FROM old_api_keys"
    )
    op.execute("DROP TABLE old_api_keys")
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
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit")),
        sqlite_strict=True,
    )
