"""Sections of the page for items with marked parts: texts, recordings, masks and boxes."""
