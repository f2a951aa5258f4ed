"""Answers kept as they are judged: their columns (`answers`), what is noted of changes, and both in the store."""
