"""Preferences: comparisons of items, and the ranking that they support."""
