"""The database: what was pulled, what was concluded, what must still be pushed."""
