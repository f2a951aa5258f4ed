"""Cycles when they are due."""
