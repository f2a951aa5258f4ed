"""Demos with recorded answers by real annotators."""
