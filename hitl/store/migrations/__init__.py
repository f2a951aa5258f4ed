"""Schema migrations (alembic)."""
