"""Migrate the connection passed by `hitl.store.database`, inside its transaction. Alembic runs this file."""

from __future__ import annotations

from alembic import context

from hitl.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
