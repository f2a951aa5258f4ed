"""Classifiers that learn from the consensus while annotators label."""
