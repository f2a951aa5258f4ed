"""Compiled loops, special functions, and checks of settings."""
