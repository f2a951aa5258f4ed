"""Cycles kept going: when each project's is due, what is due written down, and the worker that runs it."""
