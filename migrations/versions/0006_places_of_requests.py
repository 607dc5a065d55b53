"""Requests with an Idempotency-Key are remembered by places: a transaction takes several."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Places were seqs of entries. Those of before count one each.
    op.execute("CREATE TEMP TABLE old_requests AS SELECT * FROM requests")
    op.execute("DELETE FROM requests")
    op.execute(
        "INSERT INTO requests SELECT scope, row_number() OVER (ORDER BY place), created_us, result"
        " FROM old_requests"
    )
    op.execute("DROP TABLE old_requests")
    op.execute("CREATE TEMP TABLE old_journal_state AS SELECT * FROM journal_state")
    op.drop_table("journal_state")
    op.create_table(
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
        sa.Column("paged_seq", sa.Integer, nullable=False),
        sa.Column("waiting_sections", sa.Integer, nullable=False),
        sa.Column("requests_place", sa.Integer, nullable=False),
        sa.Column("checksum", sa.Integer, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_journal_state_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal_state")),
        sqlite_strict=True,
    )
    op.execute(
        "INSERT INTO journal_state SELECT id, bucket_id, applied_seq, epoch, writer_id, entry_id,"
        " header_crc, created_us, next_topic_id, paged_seq, waiting_sections,"
        " (SELECT count(*) FROM requests), checksum"
        " FROM old_journal_state"
    )
    op.execute("DROP TABLE old_journal_state")
