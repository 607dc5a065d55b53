"""Alembic's environment: runs on the connection that seb_appliance/state/checks.py hands over.

Each migration is one transaction. There is no offline mode and no logging set-up here: migrations
run inside the starting appliance.
"""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    render_as_batch=True,  # SQLite changes a table by making a new one
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
