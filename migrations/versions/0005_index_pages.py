"""Pages of the index, so that a start need not load where all records lie; who wrote when."""

import sqlalchemy as sa
from alembic import op

from seb_appliance.formats.contents import decode_sections
from seb_appliance.state.rows.index_pages import is_long, make_pages
from seb_appliance.state.tables import Tables

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "writers",
        sa.Column("first_seq", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("writer_id", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("first_seq", name=op.f("pk_writers")),
        sqlite_strict=True,
    )
    op.execute(
        "INSERT INTO writers SELECT min(seq), epoch, writer_id FROM journal_entries"
        " GROUP BY epoch, writer_id"
    )
    op.create_table(
        "index_pages",
        sa.Column("topic_id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("base_offset", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("end_offset", sa.Integer, nullable=False),
        sa.Column("newest_us", sa.Integer, nullable=False),
        sa.Column("total_bytes", sa.Integer, nullable=False),
        sa.Column("sections", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "base_offset", name=op.f("pk_index_pages")),
        sqlite_strict=True,
    )
    op.create_index(
        op.f("ix_index_pages_topic_id_newest_us_base_offset"),
        "index_pages",
        ["topic_id", "newest_us", "base_offset"],
    )
    paged_seq, waiting_sections = _make_pages(op.get_bind())
    # SQLite adds no NOT NULL column without a default for ever after: the table is made anew.
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
        sa.Column("checksum", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal_state")),
        sa.CheckConstraint("id = 1", name=op.f("ck_journal_state_one_row")),
        sqlite_strict=True,
    )
    op.get_bind().execute(
        sa.text(
            "INSERT INTO journal_state SELECT id, bucket_id, applied_seq, epoch, writer_id,"
            " entry_id, header_crc, created_us, next_topic_id, :paged_seq, :waiting, checksum"
            " FROM old_journal_state"
        ),
        {"paged_seq": paged_seq, "waiting": waiting_sections},
    )
    op.execute("DROP TABLE old_journal_state")


def _make_pages(connection: sa.Connection) -> tuple[int, int]:
    """The pages that there would be had there always been pages: they are a view of the rows of
    entries, so a release that wants others makes them anew from there, too."""
    tables = Tables(connection.connection.driver_connection)
    paged_seq = waiting_sections = 0
    found = connection.exec_driver_sql("SELECT seq, contents FROM journal_entries ORDER BY seq")
    for seq, contents in found:
        waiting_sections += len(decode_sections(contents))
        if is_long(seq - paged_seq, waiting_sections):
            make_pages(tables, paged_seq, seq)
            paged_seq, waiting_sections = seq, 0
    return paged_seq, waiting_sections
