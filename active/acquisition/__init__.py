"""Acquisition: scores, expected gain, value of information, core sets."""
