"""Demos with recorded answers of real annotators."""
