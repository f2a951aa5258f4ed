"""Labeling platforms and file formats: one a file."""
