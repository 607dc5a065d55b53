"""Topics, journal entries, API keys, and the position in the journal.

The checksum in `journal_state` is set by whoever runs the migrations (state/checks.py).
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "topics",
        sa.Column("topic_id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_us", sa.Integer, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("topic_id", name=op.f("pk_topics")),
        sa.UniqueConstraint("name", name=op.f("uq_topics_name")),
        sqlite_strict=True,
    )
    op.create_table(
        "journal_entries",
        sa.Column("seq", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("writer_id", sa.LargeBinary, nullable=False),
        sa.Column("created_us", sa.Integer, nullable=False),
        sa.Column("length", sa.Integer, nullable=False),
        sa.Column("sections_at", sa.Integer, nullable=False),
        sa.Column("contents", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_journal_entries")),
        sqlite_strict=True,
    )
    op.create_table(
        "api_keys",
        sa.Column("api_key_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary, nullable=False),
        sa.Column("grants", sa.Text, nullable=False),
        sa.Column("created_us", sa.Integer, nullable=False),
        sa.Column("expires_us", sa.Integer),
        sa.PrimaryKeyConstraint("api_key_id", name=op.f("pk_api_keys")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    journal_state = op.create_table(
        "journal_state",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("bucket_id", sa.LargeBinary),
        sa.Column("applied_seq", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("writer_id", sa.LargeBinary, nullable=False),
        sa.Column("entry_id", sa.LargeBinary, nullable=False),
        sa.Column("header_crc", sa.Integer, nullable=False),
        sa.Column("created_us", sa.Integer, nullable=False),
        sa.Column("next_topic_id", sa.Integer, nullable=False),
        sa.Column("checksum", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal_state")),
        sa.CheckConstraint("id = 1", name=op.f("ck_journal_state_one_row")),
        sqlite_strict=True,
    )
    origin = {
        "id": 1,
        "bucket_id": None,
        "applied_seq": 0,
        "epoch": 0,
        "writer_id": b"\0" * 16,
        "entry_id": b"\0" * 16,
        "header_crc": 0,
        "created_us": 0,
        "next_topic_id": 1,
        "checksum": 0,
    }
    op.bulk_insert(journal_state, [origin])
