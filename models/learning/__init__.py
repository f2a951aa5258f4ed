"""Classifiers that learn from the consensus while people label."""
