"""Policies: which item next, which annotator, when to stop."""
